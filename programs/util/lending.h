/* lending.h - what the owner of a machine lends to a run: flags of "strait join". */
#pragma once

#include <strait/error.h>

#include <stdint.h>

/* As the user gave them; NULL: not given. */
typedef struct strait_lending_flags {
    const char *memory, *rate_up, *rate_down, *hours;
} strait_lending_flags;

typedef struct strait_lending {
    int64_t memory_bytes;         // 0: what is free
    double up_bps, down_bps;      // bits per second; 0: no limit
    int has_hours;                // only in some hours of the day
    int begin_minute, end_minute; // of the day, if so
} strait_lending;

/* Parses the flags. STRAIT_ECONFIG names the flag and what it expects. */
strait_err strait_lending_parse(const strait_lending_flags *flags, strait_lending *out);

/* Whether the machine is lent at this moment, by its local time. */
int strait_lending_is_open(const strait_lending *lending);
