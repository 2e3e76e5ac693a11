/* wanlink.h - a wide-area link between two TUN devices: rate, delay, a queue that drops its tail.
 *
 * Each direction has a thread that reads packets from one device, gives each the time at which a
 * wire of that rate would have delivered it, and writes it to the other device then. */
#pragma once

#include <stdint.h>

typedef struct wanlink_spec {
    double rate_bps;
    int64_t delay_ns; // one way
    int64_t queue_ns; // packets that would wait longer for the wire are dropped
    double loss;      // share of packets
} wanlink_spec;

struct wanlink;

/* The devices must not block. They are borrowed until close. NULL when memory or threads are
 * short. */
struct wanlink *wanlink_open(int tun_a, int tun_b, wanlink_spec spec);
void wanlink_close(struct wanlink *link); // accepts NULL
