/* world.h - the ranks of the job that this process was started in, by mpirun or srun.
 *
 * MPI belongs to a whole process and cannot be started twice, so there is one world per process. It
 * is joined once, by the main thread, before any transport "mpi" is opened. Afterwards every thread
 * may use these functions. */
#pragma once

#include "base/file.h"
#include "net/mpi/module.h"

enum {
    STRAIT_MPI_HOST = 64,
    STRAIT_MPI_NAME = 128,
    STRAIT_MPI_RANKS = 4096,
    STRAIT_MPI_TEXT = 1 << 18 // longest text, with its zero
};

/* One rank, as it described itself when it joined. */
typedef struct strait_mpi_member {
    char host[STRAIT_MPI_HOST];
    int64_t pid, pid_namespace; // a pid is meaningful only within its namespace
    int cores;                  // that the process may use
    int is_bound;               // fewer than the machine has: the launcher has bound the process
    int node;                   // ranks with the same host have the same number, from 0
    int local;                  // number among the ranks of its node
} strait_mpi_member;

/* Finds and opens the module without starting MPI; *name is that of the MPI library, with its
 * version. STRAIT_ENOTSUP: it is not installed, and `path` is empty, or lacks a library. */
strait_err strait_mpi_find(char path[STRAIT_PATH_MAX], const char **name);

/* Starts MPI and learns who the other ranks are. STRAIT_ENOTSUP as above; STRAIT_EPROTO when the
 * ranks are of different releases. Called by every rank. */
strait_err strait_mpi_join(void);

/* Ends MPI; waits for the other ranks. Does nothing in a process that has not joined. */
void strait_mpi_leave(void);

/* Ends all ranks of the job with this exit code; returns only in a process that has not joined. */
void strait_mpi_abort(int code);

/* The module of the world joined; NULL: this process has not joined any. */
const strait_mpi_module *strait_mpi_world(void);
const char *strait_mpi_name(void); // of the MPI library and its version
int strait_mpi_rank(void);
int strait_mpi_size(void);
const strait_mpi_member *strait_mpi_member_of(int rank);

/* STRAIT_ECLOSED when the process of a rank on this machine has ended; other machines are not
 * known. */
strait_err strait_mpi_check(int rank);

/* Sends a text to another rank and waits until it is on its way. STRAIT_ECLOSED. */
strait_err strait_mpi_send_text(int rank, const char *text);
/* Waits for a text of another rank, which the caller frees with strait_alloc_free; timeout_ms -1:
 * without limit. STRAIT_ECLOSED when the rank has ended, STRAIT_ETIMEDOUT, or the error of
 * `check`, which is asked every few milliseconds; NULL: nothing is asked. */
strait_err strait_mpi_receive_text(int rank, int timeout_ms, strait_err (*check)(void *user),
                                   void *user, char **out);
