/* pool.h - a fixed set of threads that share out numbered tasks.
 *
 * The cut into tasks is the caller's and must follow from the shape of the work alone, never from
 * the number of threads: then the results have the same bits on one thread and on many. */
#pragma once

#include "base/error.h"

struct strait_pool;

typedef void (*strait_pool_task)(void *arg, int task);

/* `n_threads` includes the caller of run(); 0 asks for one per core available to this process. */
strait_err strait_pool_open(int n_threads, struct strait_pool **out);
void strait_pool_close(struct strait_pool **pool); // accepts NULL

int strait_pool_threads(const struct strait_pool *pool);

/* Calls task(arg, 0) to task(arg, n_tasks - 1), in any order, on all threads; returns when all are
 * done. One caller at a time; tasks do not call it. Does not allocate. */
void strait_pool_run(struct strait_pool *pool, int n_tasks, strait_pool_task task, void *arg);
