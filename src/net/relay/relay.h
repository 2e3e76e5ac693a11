/* relay.h - a relay: passes bytes between two nodes that cannot accept connections.
 *
 * Both dial the relay and show the same token of 32 bytes; it joins them and from then on copies
 * what one sends to the other, without looking. The nodes speak TLS through it and know each
 * other's keys, so the relay can read nothing, alter nothing unnoticed, and pose as nobody; all it
 * can do is to stop.
 *
 * Everything is bounded: connections in all and for each address, those that have said nothing,
 * those that wait, the time for each of these, and memory: a connection that only waits takes
 * less than a kilobyte, a joined one 64 KiB more. One thread, the one in run(), does everything.
 * The process has to ignore SIGPIPE. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Zeros mean the default. */
typedef struct strait_relay_config {
    int max_connections;    // at once; 4096, or what the process may open if that is less
    int max_new;            // of them, those that have not greeted; the oldest goes first; 256
    int max_waiting;        // of them, those that wait for another; the oldest goes first; 1024
    int max_per_address;    // at once from one address (IPv6: one /64 network); 64
    int max_new_per_s;      // new ones in a second from one address, on average; 32
    int request_timeout_ms; // for the greeting; 5000
    int waiting_timeout_ms; // for the other side to come; 30000
    int idle_timeout_ms;    // a joined pair that is silent for so long is parted; 60000
    int64_t bytes_per_s;    // of each joined pair, each way; 0: no limit
} strait_relay_config;

typedef struct strait_relay_stats {
    int64_t n_accepted, n_refused; // refused: over a limit, silent, or unclear
    int64_t n_paired;              // pairs so far
    int64_t bytes;                 // passed so far
    int n_new, n_waiting, n_pairs; // now
} strait_relay_stats;

struct strait_relay;

strait_err strait_relay_open(const strait_relay_config *config, struct strait_relay **out);
void strait_relay_close(struct strait_relay **relay); // hangs up on everybody; accepts NULL

/* `address` is numeric, host:port; writes the one that was bound. STRAIT_EINVAL. */
strait_err strait_relay_listen(struct strait_relay *relay, const char *address, char *out,
                               size_t capacity);

/* Works until stop(). */
void strait_relay_run(struct strait_relay *relay);
/* From any thread and from signal handlers. */
void strait_relay_stop(struct strait_relay *relay);

/* Only while run() is not at work. */
void strait_relay_read_stats(const struct strait_relay *relay, strait_relay_stats *out);
