/* progress.h - progress of long work: one line, rewritten on a terminal, plain lines elsewhere.
 *
 * Everything goes to standard error; standard output is for results. A log file receives the same
 * lines with the time of day before each. One thread uses a progress. */
#pragma once

#include <stdint.h>
#include <stdio.h>

typedef struct strait_progress {
    int is_terminal; // lines may be redrawn
    int has_color;
    int is_quiet; // standard error shows warnings alone; 2: not even those
    FILE *log;    // NULL: none
    int is_open;  // the terminal shows a line without its newline
    double last;  // when the last line was shown
} strait_progress;

/* Colours are off if NO_COLOR is set; with TERM=dumb nothing is redrawn either. */
void strait_progress_init(strait_progress *progress);

/* Shows the current state. On a terminal it replaces the previous state, at most ten times per
 * second unless `is_final`; elsewhere it prints a line if `is_due`. Fields are separated by two
 * spaces: those that a narrow terminal has no columns for are left out. */
void strait_progress_show(strait_progress *progress, int is_due, int is_final, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));

/* Prints a line that is not replaced. */
void strait_progress_say(strait_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints "note: ..." likewise, also if the progress is quiet. */
void strait_progress_warn(strait_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The columns of the terminal on standard error; 0: there is none. */
int strait_progress_columns(void);

/* "1h02m", "3m20s", "12s" into `out`. */
void strait_progress_duration(double seconds, char out[32]);
/* "1.5 GiB", "312 MiB" into `out`. */
void strait_progress_bytes(double bytes, char out[32]);
/* "1.23M", "45.6k", "789" into `out`: a count of tokens or parameters. */
void strait_progress_count(double n, char out[32]);
/* "2026-01-31T12:00:00.250Z" into `out`, of a time in seconds since 1970; of now for 0. */
void strait_progress_date(double seconds, char out[32]);

/* The ending of a noun after `n`: "1 layer", "2 layers". */
const char *strait_progress_plural(int64_t n);
