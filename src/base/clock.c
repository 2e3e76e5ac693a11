#include "base/clock.h"

#include <time.h>

int64_t strait_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double strait_clock_seconds(void) {
    return (double)strait_clock_ns() * 1e-9;
}
