/* teller.h - the story of a training run, told on standard error as it happens. */
#pragma once

#include <strait/session.h>

#include "config/run.h"
#include "progress.h"

typedef struct strait_progress_log {
    strait_progress progress;
    const strait_run *run;
    const char *folder;
    double began;
    int64_t first_step;
    double valid_loss;
    int has_valid, was_warned;
} strait_progress_log;

/* Keeps `run` and `folder`. */
void strait_progress_log_init(strait_progress_log *log, const strait_run *run, const char *folder);

/* They stop the session after the first interrupt (signals.h). */
strait_session_events strait_progress_log_events(strait_progress_log *log);
