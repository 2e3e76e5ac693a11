/* trace.h - prints the system calls of a process that fail, with the paths that they name. */
#pragma once

#include <sys/types.h>

/* In the child, before it does anything else: lets its parent trace it, and waits for the parent.
 * Returns 0 where tracing is not allowed. */
int trace_begin(void);

/* In the parent: follows a child that called trace_begin, and all its threads and processes, until
 * it has ended, and prints every system call that was refused (EPERM, EACCES, ENOSYS), each once;
 * with `prints_all` those that failed in another way, too. Returns the status of the child, as
 * waitpid does. */
int trace_follow(pid_t child, int prints_all);
