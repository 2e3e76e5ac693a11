/* runner.h - trains the runs of a queue as child processes of this program, several at a time.
 *
 * Each run has a folder OUT/runs/LABEL, as `strait train` writes it, with OUT/runs/LABEL.yaml and
 * LABEL.log beside it. A run that was interrupted continues from its last checkpoint. After a run,
 * the test text is evaluated once by `strait eval`; then its weights are removed. */
#pragma once

#include "study/queue.h"

/* How far a study is. */
typedef struct strait_study_progress {
    int n_done, n_failed, n_running, n_jobs;
    double seconds;      // since the start
    double seconds_left; // estimated from the work that was done in this sitting; NaN: unknown
} strait_study_progress;

/* Callbacks, called in the thread of strait_runner_run. Each may be NULL. */
typedef struct strait_runner_events {
    void *user;
    void (*started)(void *user, const strait_job *job);
    void (*finished)(void *user, const strait_job *job);
    void (*failed)(void *user, const strait_job *job);
    void (*progressed)(void *user, const strait_study_progress *progress); // a few times a second
    int (*must_stop)(void *user); // nonzero: interrupt the runs, which save, and return
} strait_runner_events;

typedef struct strait_runner_spec {
    const strait_study *study;
    struct strait_queue *queue;
    const char *folder; // exists
    int n_parallel;     // runs at a time
    int keeps_weights;
    strait_runner_events events;
} strait_runner_spec;

enum {
    STRAIT_RUNNER_PARALLEL = 64
};

/* Returns when every job is done or failed. A failed run is an event, not an error. STRAIT_EIO: the
 * results cannot be written. STRAIT_EINTERRUPTED: must_stop asked for it. Blocks. */
strait_err strait_runner_run(const strait_runner_spec *spec);
