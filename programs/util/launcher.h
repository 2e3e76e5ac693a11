/* launcher.h - whether mpirun or srun has started this process as one of several. */
#pragma once

#include <strait/error.h>

/* Joins the other ranks if a launcher has started several; *rank is 0 without a launcher.
 * STRAIT_ENOTSUP: MPI is missing, or the launcher and MPI do not know each other. */
strait_err strait_launcher_join(int *rank);

/* What to put before a command to start it as this process was started, such as "mpirun -n 4 ";
 * empty without a launcher. */
const char *strait_launcher_prefix(void);

/* Leaves the other ranks before the process exits with `code`. Call after the last message was
 * printed: it may end the process. Does nothing without a launcher. */
void strait_launcher_leave(int code);
