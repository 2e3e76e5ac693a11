/* address_class.h - what kind of place a network address is, so that a process can refuse to dial
 * some of them.
 *
 * A worker dials addresses that others choose. Were it to dial any, it could be used to probe the
 * network it is in: its own machine, its router, the machines beside it. Pure functions. */
#pragma once

#include "base/error.h"

#include <sys/socket.h>

/* Bits, so that several can be allowed. */
typedef enum strait_address_class {
    STRAIT_ADDRESS_PUBLIC = 1,
    /* 10/8, 172.16/12, 192.168/16, 100.64/10, 198.18/15, fc00::/7, fec0::/10 and the networks of
     * documentation, 192.0.2/24, 198.51.100/24 and 203.0.113/24. */
    STRAIT_ADDRESS_PRIVATE = 2,
    STRAIT_ADDRESS_LINK_LOCAL = 4, // 169.254/16, fe80::/10
    STRAIT_ADDRESS_LOOPBACK = 8,   // 127/8, ::1
    /* No machine's: unspecified, multicast, broadcast, reserved, or of an unknown family. */
    STRAIT_ADDRESS_NONE = 16
} strait_address_class;

/* The class of an IPv4 or IPv6 address. IPv6 addresses that contain an IPv4 address (mapped,
 * NAT64, 6to4) have the class of that one. */
strait_address_class strait_address_classify(const struct sockaddr *address);

/* The class of a numeric "host:port". STRAIT_ADDRESS_NONE for a name, which has none before it is
 * resolved. */
strait_address_class strait_address_class_of(const char *address);

/* STRAIT_OK if the class of `address` is among the bits `classes`; 0 allows all.
 * Otherwise STRAIT_ENOTSUP, which names the class. */
strait_err strait_address_may_dial(const struct sockaddr *address, unsigned classes);
