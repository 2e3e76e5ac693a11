/* wanlink.h - a wide-area link between two TUN devices: rate, delay, and a tail-drop queue.
 *
 * Each direction has a thread that reads packets from one device, computes when a wire of that rate
 * would deliver each, and writes it to the other device at that time. */
#pragma once

#include <stdint.h>

typedef struct wanlink_spec {
    double rate_bps;
    int64_t delay_ns; // one way
    int64_t queue_ns; // packets that would wait longer for the wire are dropped
    double loss;      // fraction of packets lost
} wanlink_spec;

struct wanlink;

/* Starts the threads. The devices must be non-blocking and are borrowed until close. NULL when
 * memory or threads are exhausted. */
struct wanlink *wanlink_open(int tun_a, int tun_b, wanlink_spec spec);
void wanlink_close(struct wanlink *link); // accepts NULL
