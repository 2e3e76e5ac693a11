/* cluster.h - one run on the ranks of a job that mpirun or srun has started.
 *
 *     int rank = 0;
 *     err = strait_cluster_join(&rank);
 *     if (err == STRAIT_OK) err = rank == 0 ? train() : strait_cluster_serve();
 *     strait_cluster_leave(err == STRAIT_OK ? 0 : 4);
 *
 * After a process has joined, trainers and sessions that it opens put their stages onto the ranks
 * (stages.place). Rank 0 coordinates, writes metrics and computes stages itself; all others serve.
 * Messages go by MPI, whatever link.transport says. `strait train` does this under a launcher. */
#pragma once

#include <strait/api.h>
#include <strait/error.h>
#include <strait/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts MPI, in every rank and once per process; *rank is the number of this one.
 * STRAIT_ENOTSUP: strait-mpi.so or the MPI library is missing. STRAIT_EPROTO: the ranks are of
 * different releases. The process should ignore SIGPIPE. */
STRAIT_API strait_err strait_cluster_join(int *rank);

/* The number of ranks; 1 in a process that has not joined. */
STRAIT_API int strait_cluster_size(void);

/* Describes for people on which rank each stage of a run will be computed, in one line each,
 * without a newline at the end; borrowed until the next call. STRAIT_ECONFIG: there are more ranks
 * than stages. */
STRAIT_API strait_err strait_cluster_describe(const struct strait_run *run, const char **out);

/* For ranks from 1 on: computes the stages that rank 0 assigns, until it leaves. STRAIT_ECLOSED:
 * rank 0 was lost. */
STRAIT_API strait_err strait_cluster_serve(void);

/* Ends MPI. With code 0, and after an error of rank 0 that has lost no rank, all ranks end in
 * order; otherwise the whole job is ended with this code, and the call does not return. Does
 * nothing in a process that has not joined. */
STRAIT_API void strait_cluster_leave(int code);

#ifdef __cplusplus
}
#endif
