#include "swarm/worker/hours.h"

#include <ctype.h>
#include <stdlib.h>

/* Reads HOUR or HOUR:MINUTE at *at and moves *at past it; -1: there is none. */
static int read_time(const char **at) {
    char *end = NULL;
    if (!isdigit((unsigned char)**at)) return -1;
    const long hour = strtol(*at, &end, 10);
    long minute = 0;
    if (*end == ':' && isdigit((unsigned char)end[1]) && isdigit((unsigned char)end[2])) {
        minute = (end[1] - '0') * 10 + (end[2] - '0');
        end += 3;
    }
    *at = end;
    if (hour > 24 || minute > 59 || hour * 60 + minute > STRAIT_HOURS_DAY) return -1;
    return (int)(hour * 60 + minute);
}

strait_err strait_hours_parse(const char *text, strait_hours *out) {
    const char *at = text;
    const int begin = read_time(&at);
    const int is_range = begin >= 0 && *at++ == '-';
    const int end = is_range ? read_time(&at) : -1;
    if (end < 0 || *at != '\0' || begin % STRAIT_HOURS_DAY == end % STRAIT_HOURS_DAY)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "'%.40s': expected two times of the day, such as 22-7 or 9:30-17", text);
    *out = (strait_hours){begin % STRAIT_HOURS_DAY, end % STRAIT_HOURS_DAY};
    return STRAIT_OK;
}

int strait_hours_contains(const strait_hours *hours, int minute) {
    if (hours->begin < hours->end) return minute >= hours->begin && minute < hours->end;
    return minute >= hours->begin || minute < hours->end;
}
