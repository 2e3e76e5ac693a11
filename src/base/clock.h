/* clock.h - time that never goes backwards. */
#pragma once

#include <stdint.h>

int64_t strait_clock_ns(void); // since some fixed point
double strait_clock_seconds(void);
