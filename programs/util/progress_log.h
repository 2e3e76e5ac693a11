/* progress_log.h - reports a training run on standard error as it proceeds. */
#pragma once

#include <strait/session.h>

#include "progress.h"

typedef struct strait_progress_log {
    strait_progress progress;
    const char *folder; // borrowed
    int64_t n_steps, batch_tokens, log_every;
    double began;       // when the first step began; 0: not yet
    int64_t first_step; // steps done before this session, which the time left must not count
    double valid_loss;
    int has_valid, was_warned;
} strait_progress_log;

/* Borrows `folder`. Errors are those of strait_run_get_int. */
strait_err strait_progress_log_init(strait_progress_log *log, const struct strait_run *run,
                                    const char *folder);

/* Callbacks that print, and stop the session after the first interrupt (signals.h). They use `log`
 * until the session ends. */
strait_session_events strait_progress_log_events(strait_progress_log *log);
