/* relay.h - a relay: forwards bytes between two peers that cannot accept connections.
 *
 * Both connect to the relay and present the same token of 32 bytes; the relay pairs them and from
 * then on copies what one sends to the other, unread. The peers use TLS through it and know each
 * other's keys, so the relay can neither read nor change anything unnoticed, nor pose as a peer;
 * all it can do is to delay or stop the traffic.
 *
 * Everything is bounded: connections in all and per address, those that have sent no request, those
 * that wait, the time for each of these, and memory: a waiting connection takes less than a
 * kilobyte, a paired one 64 KiB more. One thread, the one in run(), does everything. The process
 * has to ignore SIGPIPE. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Limits. Zero means the default. */
typedef struct strait_relay_config {
    int max_connections; // at once; 4096, or the limit of open files if that is less
    /* The oldest of the address with the most connections is evicted first. */
    int max_new;            // without a request yet; 256
    int max_waiting;        // waiting for a peer; 1024
    int max_per_address;    // at once from one address (IPv6: one /64 network); 64
    int max_new_per_s;      // opened per second from one address, on average; 32
    int request_timeout_ms; // for the request to arrive; 5000
    int waiting_timeout_ms; // for the peer to come; 30000
    int idle_timeout_ms;    // a pair that sends nothing for this long is closed; 60000
    int64_t bytes_per_s;    // of each pair and direction; 0: unlimited
    /* Refuses tokens that were not made with it (relay_secret.h); copied. NULL: anyone may use the
     * relay. */
    const struct strait_relay_secret *secret;
    /* A peer of another relay protocol version was refused, or the first token that was not made
     * with the secret; strait_err_detail() says which. Called once per version and once for the
     * secret, so that it cannot flood a log. May be NULL. */
    void (*peer_refused)(void *user);
    void *user;
} strait_relay_config;

typedef struct strait_relay_stats {
    int64_t n_accepted;
    int64_t n_refused;             // over a limit or with an invalid request
    int64_t n_paired;              // pairs so far
    int64_t bytes;                 // forwarded so far
    int n_new, n_waiting, n_pairs; // now
} strait_relay_stats;

struct strait_relay;

/* Creates a relay that does not listen yet. STRAIT_ENOMEM. */
strait_err strait_relay_open(const strait_relay_config *config, struct strait_relay **out);
void strait_relay_close(struct strait_relay **relay); // closes all connections; accepts NULL

/* Listens at the numeric `address`, host:port, and writes the one that was bound. STRAIT_EINVAL,
 * STRAIT_EINUSE. */
strait_err strait_relay_listen(struct strait_relay *relay, const char *address, char *out,
                               size_t capacity);

/* Serves connections until stop() is called. */
void strait_relay_run(struct strait_relay *relay);
/* May be called from any thread and from signal handlers. */
void strait_relay_stop(struct strait_relay *relay);

/* Reads the counters. Only while run() is not active. */
void strait_relay_read_stats(const struct strait_relay *relay, strait_relay_stats *out);
