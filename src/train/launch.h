/* launch.h - starting the stages of a run on this machine, and seeing them end. */
#pragma once

#include "stage/stage_process.h"

#include <pthread.h>
#include <sys/types.h>

/* One started stage. Zeroed is closed. */
struct strait_launched {
    int stage;
    pid_t pid;        // of a process; 0: a thread
    pthread_t thread; // valid when has_thread
    int has_thread;
    int to, from; // pipes, open until go; 0: closed
    int ends[2];  // a thread's own ends
    struct strait_inproc_network *network;
};

/* Starts a process of the strait program (base/program.h) with the hidden command "stage", or, with
 * `network`, a thread. `words` stand before that command; empty: none. */
strait_err strait_launch(int stage, const char *words, struct strait_inproc_network *network,
                         struct strait_launched *out);

/* Says the start line and reads the answer. */
strait_err strait_launch_introduce(struct strait_launched *l, const strait_startup *start,
                                   strait_fingerprint *key, char address[STRAIT_ADDRESS_MAX]);

/* The coordinator now knows the stage's key: it may dial. Closes the pipes. */
strait_err strait_launch_go(struct strait_launched *l);

/* How a process ended, in words, once it has: "was killed by signal 9"; NULL while it lives. Waits
 * up to wait_ms. Borrowed, valid until the next call in this thread. */
const char *strait_launch_ended(struct strait_launched *l, int wait_ms);

/* Waits for its end; a process that is not gone after wait_ms is killed. */
void strait_launch_fini(struct strait_launched *l, int wait_ms);
