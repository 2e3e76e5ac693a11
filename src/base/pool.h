/* pool.h - a thread pool that runs numbered tasks.
 *
 * The caller splits work into tasks by its shape alone, never by the number of threads. Results
 * then have the same bits for any number of threads. */
#pragma once

#include "base/error.h"

struct strait_pool;

typedef void (*strait_pool_task)(void *arg, int task);

/* `n_threads` includes the caller of run(); 0 asks for one per core available to this process. */
strait_err strait_pool_open(int n_threads, struct strait_pool **out);
void strait_pool_close(struct strait_pool **pool); // accepts NULL

int strait_pool_threads(const struct strait_pool *pool);

/* Calls task(arg, 0) to task(arg, n_tasks - 1) on all threads in any order, and returns when all
 * have finished. One caller at a time; a task must not call it. Does not allocate. */
void strait_pool_run(struct strait_pool *pool, int n_tasks, strait_pool_task task, void *arg);
