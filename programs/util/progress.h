/* progress.h - progress of long work: one line, rewritten on a terminal, plain lines elsewhere.
 *
 * Everything goes to standard error; standard output is for results. One thread uses a progress. */
#pragma once

#include <stdint.h>
typedef struct strait_progress {
    int is_terminal;
    int is_open; // the terminal shows a line without its newline
    double last; // when the last line was shown
} strait_progress;

void strait_progress_init(strait_progress *progress);

/* Shows the current state. On a terminal it replaces the previous state, at most ten times per
 * second unless `is_final`; elsewhere it prints a line if `is_due`. */
void strait_progress_show(strait_progress *progress, int is_due, int is_final, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));

/* Prints a line that is not replaced. */
void strait_progress_say(strait_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "1h02m", "3m20s", "12s" into `out`. */
void strait_progress_duration(double seconds, char out[32]);
/* "1.5 GiB", "312 MiB" into `out`. */
void strait_progress_bytes(double bytes, char out[32]);

/* The ending of a noun after `n`: "1 layer", "2 layers". */
const char *strait_progress_plural(int64_t n);
