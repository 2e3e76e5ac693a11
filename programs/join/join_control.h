/* join_control.h - workers of this machine seen from another process: what they do, and how they
 * are stopped.
 *
 * A worker writes what it does into the file KEYS/node.status, which it opens before it confines
 * itself. The lock on its key says whether it still runs. */
#pragma once

#include "join_report.h"

/* Opens the status file of the worker with this number; -1 in *fd: none yet. */
strait_err strait_join_control_open(const char *keys, int number, int *fd);

/* Replaces what the file says. A disk that is full is no reason to stop a worker. */
void strait_join_control_write(int fd, const strait_join_report *report);

/* Prints what each running worker with these keys does. STRAIT_ECLOSED: none runs. */
strait_err strait_join_control_show(const char *keys);

/* Asks every running worker with these keys to hand its stage over and leave, and waits for it.
 * STRAIT_ETIMEDOUT: one still runs. */
strait_err strait_join_control_stop(const char *keys);
