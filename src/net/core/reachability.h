/* reach.h - by which of its addresses others may reach this machine. */
#pragma once

#include "net/core/transport.h"

/* STRAIT_ECONFIG where `address` is neither host:port nor, unless it needs a port, a host. Looks at
 * its letters only. */
strait_err strait_reachability_check(const char *address, int needs_port);

/* Completes what neighbours shall dial. `bound` is where we listen, host:port; `wanted` is what the
 * user announces, "host", "host:port" or empty. Where we listen on all addresses and nothing is
 * announced, it is the address that packets to `towards` (host:port) leave from. */
void strait_reachability_address(const char *bound, const char *wanted, const char *towards,
                                 char out[STRAIT_ADDRESS_MAX]);
