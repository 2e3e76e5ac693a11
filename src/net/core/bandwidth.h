/* bandwidth.h - limits the bytes per second that a process sends, or that it receives.
 *
 * All links of a process share one limit per direction, so that what a lender allows holds for the
 * machine and not for each link. Bytes are counted with the headers of TCP over IPv4 on Ethernet,
 * as link emulation counts them. Receiving is limited by reading slowly: TCP then slows the sender.
 * Links that wait to send take turns, so that a busy one does not starve the others. Any thread. */
#pragma once

#include "base/error.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_BANDWIDTH_WAITING = 16 // links that take turns; further ones are served as they come
};

struct strait_bandwidth {
    double bytes_per_s; // never changes
    pthread_mutex_t mutex;
    /* Guarded by mutex. */
    int64_t free_ns; // when all bytes so far have been paid for
    struct {
        const void *link;
        int64_t asked_ns;                // last
    } waiting[STRAIT_BANDWIDTH_WAITING]; // in the order in which they began to wait
    int n_waiting;
};

/* `bits_per_s` above 0. */
void strait_bandwidth_init(struct strait_bandwidth *limit, double bits_per_s);
void strait_bandwidth_fini(struct strait_bandwidth *limit);

/* Returns when bytes may be moved next: now or earlier if at once. NULL: no limit. */
int64_t strait_bandwidth_due_ns(struct strait_bandwidth *limit, int64_t now_ns);

/* The same for one of several links, which waits for its turn from then on: a link that asks again
 * too late loses it. `link` only tells them apart. */
int64_t strait_bandwidth_turn_ns(struct strait_bandwidth *limit, const void *link, int64_t now_ns);

/* Counts bytes that were moved, and ends the turn of `link` (NULL: of none). Accepts NULL. */
void strait_bandwidth_spend(struct strait_bandwidth *limit, const void *link, size_t bytes,
                            int64_t now_ns);

/* How many of `bytes` to move at once, so that none of the links waits long for its turn. */
size_t strait_bandwidth_portion(const struct strait_bandwidth *limit, size_t bytes);
