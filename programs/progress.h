/* progress.h - how long work shows itself: one line rewritten on a terminal, plain lines elsewhere.
 *
 * Everything goes to standard error, so that standard output stays for results. */
#pragma once

#include <stdint.h>
typedef struct strait_progress {
    int is_terminal;
    int is_open; // a line without its end stands on the terminal
    double last; // when the last line was shown
} strait_progress;

void strait_progress_init(strait_progress *progress);

/* Shows the state of things. On a terminal it replaces the last shown line, at most ten times a
 * second unless `is_final`; elsewhere it prints a line of its own if `is_due`. */
void strait_progress_show(strait_progress *progress, int is_due, int is_final, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));

/* Prints a line that stays. */
void strait_progress_say(strait_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "1h02m", "3m20s", "12s" into `out`. */
void strait_progress_duration(double seconds, char out[32]);
/* "1.5 GiB", "312 MiB" into `out`. */
void strait_progress_bytes(double bytes, char out[32]);

/* What a word gets behind it where there are `n`: "1 layer", "2 layers". */
const char *strait_progress_plural(int64_t n);
