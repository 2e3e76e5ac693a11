/* session.h - a run in its folder, from its first step or its last checkpoint to its end.
 *
 *     FOLDER/run.yaml        what is being run, resolved
 *            tokenizer.json  a copy, so that the folder alone can generate text
 *            metrics.jsonl   one line a step and a validation
 *            checkpoints/    see store/checkpoint.h
 *
 * A session decides when to validate and save; what it tells, and whether it goes on, is the
 * caller's. One session at a time has a folder. */
#pragma once

#include <strait/run.h>
#include <strait/trainer.h>

#include "train/executor.h"

/* All but must_stop and user may be NULL. Called from the session's thread, between steps. */
typedef struct strait_session_events {
    void *user;
    void (*opened)(void *user, const strait_trainer_info *facts, int64_t step);
    void (*stepped)(void *user, const strait_trainer_report *report);
    void (*validated)(void *user, int64_t step, double loss);
    void (*saved)(void *user, int64_t step);
    void (*noted)(void *user, const char *text);                 // a fault the run survived
    int (*must_stop)(void *user);                                // asked after every step
    void (*ended)(void *user, const strait_trainer_info *facts); // all steps are done and saved
} strait_session_events;

typedef struct strait_session_spec {
    const strait_run *run;
    const char *folder;
    int resumes;        // go on from the newest whole checkpoint; without one, from the start
    int waits_for_disk; // a full disk stops the run until there is room for its metrics
    strait_session_events events;
    strait_executor_choice executor; // zeroed: stages of this machine
} strait_session_spec;

/* Runs to the end: STRAIT_OK. Asked to stop, it finishes the step, saves, and returns
 * STRAIT_EINTERRUPTED. A folder that already holds a run is refused unless `resumes`; what cannot
 * begin leaves nothing in one that held none. A checkpoint that cannot be written is noted and
 * tried again at the next; only the last one is an error. */
strait_err strait_session_run(const strait_session_spec *spec);

/* STRAIT_ECONFIG where the folder already holds a run and that is not to go on, or holds none but
 * files that a run would replace: for who wants to know it sooner. */
strait_err strait_session_check_folder(const char *folder, int resumes);
