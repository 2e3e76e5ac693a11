/* reachability.h - the address by which other machines can reach this one.
 *
 * A worker that listens on all interfaces has to tell its neighbours one address to dial. It is the
 * one that the user announces, or else the local address that packets to the coordinator leave
 * from. Both functions may be called from any thread; resolving a name may block. */
#pragma once

#include "net/core/transport.h"

/* Checks the syntax of an announced address: host:port, or a host alone unless `needs_port`.
 * Nothing is resolved. STRAIT_ECONFIG. */
strait_err strait_reachability_check(const char *address, int needs_port);

/* Computes the address that neighbours have to dial. `bound` is where we listen, host:port;
 * `wanted` is what the user announces: "host", "host:port" or empty. When we listen on all
 * interfaces and nothing is announced, the host is the source address of packets to `towards`
 * (host:port). When that cannot be found out, *out is `bound`. */
void strait_reachability_address(const char *bound, const char *wanted, const char *towards,
                                 char out[STRAIT_ADDRESS_MAX]);
