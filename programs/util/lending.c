/* lending.c - parses what the owner of a machine lends. */
#include "lending.h"

#include "base/options/options.h"
#include "swarm/worker/hours.h"

#include <stdio.h>
#include <time.h>

/* At less than 100 kbit/s heartbeats would be late. */
static const strait_option rows[] = {
    {"--memory", STRAIT_OPTION_BYTES, STRAIT_OPTION_FIELD(strait_lending, memory_bytes),
     .min = 1 << 20, .max = 9e15},
    {"--rate-up", STRAIT_OPTION_RATE, STRAIT_OPTION_FIELD(strait_lending, up_bps), .min = 1e5,
     .max = 1e13},
    {"--rate-down", STRAIT_OPTION_RATE, STRAIT_OPTION_FIELD(strait_lending, down_bps), .min = 1e5,
     .max = 1e13},
};

static strait_err parse(int row, const char *text, strait_lending *out) {
    if (text == NULL) return STRAIT_OK;
    const strait_err err = strait_option_parse(&rows[row], text, NULL, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", rows[row].key);
    return err;
}

static strait_err parse_hours(const char *text, strait_lending *out) {
    strait_hours hours;
    const strait_err err = strait_hours_parse(text, &hours);
    if (err != STRAIT_OK) strait_err_prefix("--hours");
    STRAIT_TRY(err);
    out->has_hours = 1;
    out->begin_minute = hours.begin;
    out->end_minute = hours.end;
    return STRAIT_OK;
}

strait_err strait_lending_parse(const strait_lending_flags *flags, strait_lending *out) {
    *out = (strait_lending){0};
    STRAIT_TRY(parse(0, flags->memory, out));
    STRAIT_TRY(parse(1, flags->rate_up, out));
    STRAIT_TRY(parse(2, flags->rate_down, out));
    return flags->hours != NULL ? parse_hours(flags->hours, out) : STRAIT_OK;
}

int strait_lending_is_open(const strait_lending *lending) {
    struct tm parts;
    const time_t now = time(NULL);
    const strait_hours hours = {lending->begin_minute, lending->end_minute};
    if (!lending->has_hours || localtime_r(&now, &parts) == NULL) return 1;
    return strait_hours_contains(&hours, parts.tm_hour * 60 + parts.tm_min);
}
