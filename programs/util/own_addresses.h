/* own_addresses.h - the addresses under which others may reach this machine. */
#pragma once

#include "net/core/reachability.h"

/* The first reachable address of each family, separated by a comma, for the invite of a host that
 * listens on all interfaces; IPv6 only if it listens there. Empty: there is none. */
void strait_own_addresses(int has_v6, char out[STRAIT_ADDRESS_MAX]);
