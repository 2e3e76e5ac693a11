/* clock.h - monotonic time. It never goes backwards and has no relation to the time of day. */
#pragma once

#include <stdint.h>

int64_t strait_clock_ns(void); // since an arbitrary fixed point
double strait_clock_seconds(void);
