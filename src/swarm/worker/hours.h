/* hours.h - the hours of the day in which a machine is lent: "22-7", "9:30-17". Pure functions. */
#pragma once

#include "base/error.h"

enum {
    STRAIT_HOURS_DAY = 24 * 60 // minutes
};

/* Minutes after midnight. `end` may be before `begin`: the range then spans midnight. */
typedef struct strait_hours {
    int begin, end;
} strait_hours;

/* Parses BEGIN-END, each HOUR or HOUR:MINUTE, 0 to 24. STRAIT_ECONFIG says what is expected; a
 * range of no length is refused, too. */
strait_err strait_hours_parse(const char *text, strait_hours *out);

/* Whether a minute of the day is within the range. The end is not. */
int strait_hours_contains(const strait_hours *hours, int minute);
