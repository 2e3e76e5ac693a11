/* rate_limiter.h - limits the connections of each source address: how many are open at once and how
 * many are opened per second (a token bucket).
 *
 * Both the tls listener and the relay use it against floods from one host. A zeroed limiter is
 * empty; set max_open and max_per_s before use. An address is kept while it has open connections
 * and until its bucket is full again. One thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

enum {
    STRAIT_RATE_LIMITER_MAX = 8192, // addresses kept at once: bounds the memory a flood can take
    STRAIT_RATE_LIMITER_BUCKETS = 1024
};

struct strait_rate_limiter_entry {
    struct strait_rate_limiter_entry *next; // in the same hash bucket
    unsigned char address[8];               // IPv4, or the /64 network of IPv6
    int n_open;
    double allowance; // new connections it may open now
    int64_t refilled_ns;
};

struct strait_rate_limiter {
    struct strait_rate_limiter_entry *buckets[STRAIT_RATE_LIMITER_BUCKETS];
    int n_entries;
    int max_open, max_per_s; // of one address; set by the owner
};

/* Counts one more connection from `from`. STRAIT_EAGAIN when the address has too many, opens them
 * too fast, or too many addresses are known. *out is valid until it is released. */
strait_err strait_rate_limiter_acquire(struct strait_rate_limiter *limiter,
                                       const struct sockaddr *from, int64_t now_ns,
                                       struct strait_rate_limiter_entry **out);
/* A connection of this address has closed. */
void strait_rate_limiter_release(struct strait_rate_limiter_entry *entry);

/* Frees the entries of addresses that are idle and have regained their whole allowance. */
void strait_rate_limiter_sweep(struct strait_rate_limiter *limiter, int64_t now_ns);
void strait_rate_limiter_fini(struct strait_rate_limiter *limiter);
