/* process.h - starts commands of this program as child processes, with their output in files.
 *
 * A child ends with its parent, however that ends: runs of a study that was killed do not go on
 * unseen beside the next one. It has a process group of its own: a signal to the group of the study
 * does not reach it, because whoever started it passes the signal on, once. Called by one thread,
 * the one that started the study. */
#pragma once

#include "base/error.h"

#include <sys/types.h>

/* Starts argv[0] with its arguments, ended by NULL. Standard output and error go to these files,
 * which are replaced; standard input is empty. STRAIT_EIO: a file cannot be opened. STRAIT_ENOMEM:
 * there is no memory for a process. */
strait_err strait_process_start(const char *const *argv, const char *out_path, const char *err_path,
                                pid_t *out);

/* Whether the child has ended; *code is then its exit code, or minus the signal that ended it. */
int strait_process_ended(pid_t pid, int *code);
