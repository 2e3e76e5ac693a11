#include "base/clock.h"

#include <time.h>

/* Monotonic: deadlines must not jump when someone sets the time of day. */
int64_t strait_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* For durations; deadlines use nanoseconds, which do not round. */
double strait_clock_seconds(void) {
    return (double)strait_clock_ns() * 1e-9;
}

/* Microseconds survive the conversion to double until the year 2242. */
double strait_clock_date(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
