/* progress_log.h - reports a training run as it proceeds: on standard error for people, in a log
 * file, or as JSON lines on standard output for scripts. */
#pragma once

#include <strait/session.h>

#include "progress.h"

/* What the flags of a command chose; one set for the whole program. */
typedef struct strait_progress_choice {
    int is_quiet, is_json;
    const char *log_path; // NULL: none
} strait_progress_choice;

extern strait_progress_choice strait_progress_chosen;

/* The rows that a command which trains adds to its table of flags. */
#define STRAIT_PROGRESS_FLAGS                                                 \
    {"quiet",                                                                 \
     'q',                                                                     \
     STRAIT_FLAG_SWITCH,                                                      \
     &strait_progress_chosen.is_quiet,                                        \
     NULL,                                                                    \
     "print notes and errors only"},                                          \
        {"json",                                                              \
         0,                                                                   \
         STRAIT_FLAG_SWITCH,                                                  \
         &strait_progress_chosen.is_json,                                     \
         NULL,                                                                \
         "print events as JSON lines on standard output (docs/metrics.md)"},  \
    {                                                                         \
        "log", 0, STRAIT_FLAG_TEXT, &strait_progress_chosen.log_path, "FILE", \
            "append what is printed to FILE, each line with the time"         \
    }

typedef struct strait_progress_log {
    strait_progress progress;
    int is_json;
    const char *folder; // borrowed
    int64_t n_steps, batch_tokens, log_every;
    double began;       // when the first step began; 0: not yet
    int64_t first_step; // steps done before this session, which the time left must not count
    double valid_loss;
    int has_valid, was_warned;
} strait_progress_log;

/* Borrows `folder`. Errors are those of strait_run_get_int, or STRAIT_EIO: the file of --log cannot
 * be opened. */
strait_err strait_progress_log_init(strait_progress_log *log, const struct strait_run *run,
                                    const char *folder);
void strait_progress_log_close(strait_progress_log *log); // also of one that was not initialised

/* Callbacks that print, and stop the session after the first interrupt (signals.h). They use `log`
 * until the session ends. */
strait_session_events strait_progress_log_events(strait_progress_log *log);

/* Says that the run is done, as the last line. */
void strait_progress_log_done(strait_progress_log *log);

/* Reports an event that is not of the session, such as a worker that joined. */
void strait_progress_log_event(strait_progress_log *log, const char *text);

/* With --json, prints {"event": event, key: text}. */
void strait_progress_log_text(const strait_progress_log *log, const char *event, const char *key,
                              const char *text);

/* The seconds that the steps left will take at the mean pace of this session; 0 before the first.
 */
double strait_progress_log_left(const strait_progress_log *log, int64_t step);
