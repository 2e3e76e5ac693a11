/* conversion.h - how import and export talk to people: notes, progress, and an end by Ctrl-C. */
#pragma once

#include "progress.h"

#include <stdint.h>

typedef struct strait_conversion {
    strait_progress progress;
    const char *command; // first word of the line of progress
    double start, printed;
} strait_conversion;

/* Counts the first Ctrl-C from now on; a second one ends the process. */
void strait_conversion_init(strait_conversion *conversion, const char *command);

/* A strait_convert_note and a strait_convert_progress whose `user` is a strait_conversion. On a
 * terminal one line is redrawn; elsewhere there is a line every ten seconds. */
void strait_conversion_say(void *conversion, const char *text);
int strait_conversion_show(void *conversion, int64_t done, int64_t total);
