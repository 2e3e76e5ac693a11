/* rate_meter.h - the rate at which bytes arrive, as the median over slices of time.
 *
 * A slice ends with the first arrival after its time, so that messages which arrive whole give
 * exact rates. What arrives before the warm-up is over, while a connection still speeds up and
 * buckets of tokens are full, does not count. Pure: time is an argument. */
#pragma once

#include <stdint.h>

enum {
    STRAIT_RATE_SLICES = 32
};

typedef struct strait_rate_meter {
    int64_t began_ns, warm_ns, slice_ns;
    int64_t mark_ns; // the arrival with which the last slice ended; 0: none
    double bytes;    // since then
    double total;    // since the beginning
    double rates[STRAIT_RATE_SLICES];
    int n;
} strait_rate_meter;

/* Begins to measure now; arrivals count from warm_ns on. */
void strait_rate_meter_init(strait_rate_meter *meter, int64_t now_ns, int64_t warm_ns,
                            int64_t slice_ns);
void strait_rate_meter_add(strait_rate_meter *meter, double bytes, int64_t now_ns);

/* Bits per second until now. Where too little arrived for a slice, the mean of all; 0: nothing
 * arrived. */
double strait_rate_meter_bps(const strait_rate_meter *meter, int64_t now_ns);
