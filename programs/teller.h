/* teller.h - the story of a training run, told on standard error as it happens. */
#pragma once

#include "pipeline/session.h"
#include "progress.h"

typedef struct strait_teller {
    strait_progress progress;
    const strait_run *run;
    const char *folder;
    double began;
    int64_t first_step;
    double valid_loss;
    int has_valid, was_warned;
} strait_teller;

/* Keeps `run` and `folder`. */
void strait_teller_init(strait_teller *teller, const strait_run *run, const char *folder);

/* They stop the session after the first interrupt (signals.h). */
strait_session_events strait_teller_events(strait_teller *teller);
