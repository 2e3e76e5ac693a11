/* clock.h - monotonic time, which never goes backwards and has no relation to the time of day; and
 * the date, for people. */
#pragma once

#include <stdint.h>

int64_t strait_clock_ns(void); // since an arbitrary fixed point
double strait_clock_seconds(void);

/* Seconds since 1970 (UTC). An operator may set it back: never measure durations with it. */
double strait_clock_date(void);
