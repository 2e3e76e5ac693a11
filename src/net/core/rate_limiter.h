/* callers.h - how many connections each address has and how fast it makes new ones.
 *
 * Zeroed is empty. An address is remembered while it has connections, and until it may make as many
 * new ones as it likes. One thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

enum {
    STRAIT_RATE_LIMITER_MAX = 8192,
    STRAIT_RATE_LIMITER_BUCKETS = 1024
};

struct strait_rate_limiter_entry {
    struct strait_rate_limiter_entry *next; // of the same bin
    unsigned char address[8];               // IPv4, or the network part of IPv6
    int n_open;
    double allowance; // new connections it may make
    int64_t refilled_ns;
};

struct strait_rate_limiter {
    struct strait_rate_limiter_entry *buckets[STRAIT_RATE_LIMITER_BUCKETS];
    int n_entries;
    int max_open, max_per_s; // for each; set by the owner
};

/* Counts one more connection from there; STRAIT_EAGAIN when that is one too many. *out is valid
 * until left(). */
strait_err strait_rate_limiter_acquire(struct strait_rate_limiter *limiter,
                                       const struct sockaddr *from, int64_t now_ns,
                                       struct strait_rate_limiter_entry **out);
void strait_rate_limiter_release(struct strait_rate_limiter_entry *source);

/* Forgets those of whom nothing need be remembered. */
void strait_rate_limiter_sweep(struct strait_rate_limiter *limiter, int64_t now_ns);
void strait_rate_limiter_fini(struct strait_rate_limiter *limiter);
