/* relay_hosts.h - how many connections each address has and how fast it makes new ones.
 *
 * Zeroed is empty. An address is remembered while it has connections, and until it may make as many
 * new ones as it likes. One thread. */
#pragma once

#include "base/error.h"

#include <stdint.h>
#include <sys/socket.h>

enum {
    STRAIT_RELAY_HOSTS_MAX = 8192,
    STRAIT_RELAY_BINS = 1024
};

struct strait_relay_host {
    struct strait_relay_host *next; // of the same bin
    unsigned char address[8];       // IPv4, or the network part of IPv6
    int n_open;
    double allowance; // new connections it may make
    int64_t seen_ns;
};

struct strait_relay_hosts {
    struct strait_relay_host *bins[STRAIT_RELAY_BINS];
    int n_hosts;
    int n_max, per_s; // for each host; set by the owner
};

/* Counts one more connection from there; STRAIT_EAGAIN when that is one too many. *out is valid
 * until left(). */
strait_err strait_relay_hosts_come(struct strait_relay_hosts *hosts, const struct sockaddr *from,
                                   int64_t now_ns, struct strait_relay_host **out);
void strait_relay_hosts_left(struct strait_relay_host *host);

/* Forgets those of whom nothing need be remembered. */
void strait_relay_hosts_sweep(struct strait_relay_hosts *hosts, int64_t now_ns);
void strait_relay_hosts_fini(struct strait_relay_hosts *hosts);
