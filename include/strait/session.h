/* session.h - train a whole run in its folder, from its first step or its last checkpoint.
 *
 *     FOLDER/run.yaml        the run; derived values as comments
 *            tokenizer.json  a copy, so that the folder alone can generate text
 *            metrics.jsonl   one line per step and per validation
 *            checkpoints/    see checkpoint.h
 *
 * The session decides when to validate and to save; the caller learns of it through callbacks and
 * decides when to stop. This is what `strait train` does. A folder has one session at a time, held
 * by a lock file. */
#pragma once

#include <strait/error.h>
#include <strait/run.h>
#include <strait/trainer.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Callbacks, called in the thread of strait_session_run between steps. Each may be NULL. Pointers
 * are valid during the call. */
typedef struct strait_session_events {
    void *user;
    void (*opened)(void *user, const strait_trainer_info *info, int64_t step); // steps done so far
    void (*stepped)(void *user, const strait_trainer_report *report);
    void (*validated)(void *user, int64_t step, double loss);
    void (*saved)(void *user, int64_t step);
    void (*noted)(void *user, const char *text); // a fault that the run survived, for people
    int (*must_stop)(void *user);                // asked after every step; nonzero: save and stop
    void (*ended)(void *user, const strait_trainer_info *info); // all steps are done and saved
} strait_session_events;

/* Everything is borrowed until strait_session_run returns. */
typedef struct strait_session_spec {
    const struct strait_run *run;
    const char *folder;
    int resumes;        // continue from the newest undamaged checkpoint, or from the start
    int waits_for_disk; // while the disk is full, wait instead of dropping metrics
    int is_forced;      // do not check first whether memory and disk are enough
    strait_session_events events;
} strait_session_spec;

/* Trains to the end of the run. STRAIT_EINTERRUPTED: must_stop asked for it; the step was finished
 * and saved. STRAIT_ECONFIG: the folder already holds a run and `resumes` is not set. If the run
 * cannot begin, a folder that held no run is left as it was: STRAIT_ENOMEM where the memory is not
 * enough (strait_trainer_check_memory), STRAIT_EIO where the disk is not enough for checkpoints
 * (strait_session_check_disk). A checkpoint that cannot be written is noted and tried again at the
 * next; only the last one is an error. Other errors are those of trainer.h. */
STRAIT_API strait_err strait_session_run(const strait_session_spec *spec);

/* Checks in advance whether a session may use the folder. STRAIT_ECONFIG: it holds a run that is
 * not to be resumed, or files that a run would overwrite. */
STRAIT_API strait_err strait_session_check_folder(const char *folder, int resumes);

/* Checks that the disk of `folder` has space for the checkpoints that will exist at once, besides
 * those that are there already. `step`: steps done. STRAIT_EIO says how much they take and what
 * needs less. */
STRAIT_API strait_err strait_session_check_disk(const struct strait_run *run, const char *folder,
                                                int64_t step);

#ifdef __cplusplus
}
#endif
