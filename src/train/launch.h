/* launch.h - starts the stages of a run as processes, threads or on other ranks of a cluster, and
 * collects their end. */
#pragma once

#include "stage/process/stage_process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* One started stage. Zeroed is closed. */
struct strait_launched {
    int stage, replica; // the replica is known once it was introduced
    pid_t pid;          // of its process; 0: it is a thread, or has ended
    pthread_t thread;   // valid when has_thread
    int has_thread;
    atomic_int has_ended; // the thread has
    int has_rank, rank;   // another rank computes it; `has_rank` 0: this process or one of ours
    int to, from;         // our ends of two pipes, open until go; 0: closed
    int ends[2];          // the stage's ends, if it is a thread
    struct strait_inproc_network *network;
};

/* Starts a process of the strait program (base/program.h) with the hidden command "stage", or, with
 * `network`, a thread. `prefix` (stages.launch) is put before the command, for example
 * "ip netns exec stage-{stage}"; empty: nothing. */
strait_err strait_launch(int stage, const char *prefix, struct strait_inproc_network *network,
                         struct strait_launched *out);

/* Starts a thread that reaches the others by MPI. */
strait_err strait_launch_thread(int stage, struct strait_launched *out);

/* Has another rank of the cluster start it. */
void strait_launch_at(int stage, int rank, struct strait_launched *out);

/* Sends the startup line and reads the stage's answer: its key and the address where it listens. */
strait_err strait_launch_introduce(struct strait_launched *l, const strait_startup *start,
                                   strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]);

/* Lets the stage dial the coordinator, which knows its key by now. Closes the pipes. */
strait_err strait_launch_go(struct strait_launched *l);

/* Describes how a process ended ("was killed by signal 9", "(rank 2 on node7) was killed or
 * failed"), waiting up to wait_ms for it; NULL while it runs or when that is not known. Borrowed;
 * valid until the next call in this thread. */
const char *strait_launch_ended(struct strait_launched *l, int wait_ms);

/* Waits for the stage to end. A process that still runs after wait_ms is killed. A thread cannot
 * be: for one that still runs after thread_ms it returns 0, and what the thread uses, *l included,
 * must stay allocated. Otherwise it returns 1. */
int strait_launch_fini(struct strait_launched *l, int wait_ms, int thread_ms);
