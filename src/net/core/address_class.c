#include "net/core/address_class.h"

#include "net/core/address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

struct network {
    uint32_t first;
    int bits;
    strait_address_class is;
};

/* The first that matches counts; all others are public. Nobody routes the documentation networks
 * (192.0.2/24, 198.51.100/24, 203.0.113/24), but labs number machines with them: they are private.
 */
static const struct network networks[] = {
    {0x00000000, 8, STRAIT_ADDRESS_NONE},        {0x0a000000, 8, STRAIT_ADDRESS_PRIVATE},
    {0x64400000, 10, STRAIT_ADDRESS_PRIVATE},    {0x7f000000, 8, STRAIT_ADDRESS_LOOPBACK},
    {0xa9fe0000, 16, STRAIT_ADDRESS_LINK_LOCAL}, {0xac100000, 12, STRAIT_ADDRESS_PRIVATE},
    {0xc0000000, 24, STRAIT_ADDRESS_NONE},       {0xc0000200, 24, STRAIT_ADDRESS_PRIVATE},
    {0xc0a80000, 16, STRAIT_ADDRESS_PRIVATE},    {0xc6120000, 15, STRAIT_ADDRESS_PRIVATE},
    {0xc6336400, 24, STRAIT_ADDRESS_PRIVATE},    {0xcb007100, 24, STRAIT_ADDRESS_PRIVATE},
    {0xe0000000, 3, STRAIT_ADDRESS_NONE}, // multicast, reserved and broadcast
};

static strait_address_class classify_v4(uint32_t a) {
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if ((a ^ networks[i].first) >> (32 - networks[i].bits) == 0) return networks[i].is;
    return STRAIT_ADDRESS_PUBLIC;
}

static uint32_t v4_at(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int has_prefix(const unsigned char *address, const unsigned char *prefix, size_t n) {
    return memcmp(address, prefix, n) == 0;
}

/* Finds an IPv4 address inside an IPv6 address: the kernel or a gateway would dial that one. */
static const unsigned char *embedded_v4(const unsigned char *b) {
    static const unsigned char zeros[12], mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    if (has_prefix(b, mapped, 12) || has_prefix(b, nat64, 12)) return b + 12;
    if (b[0] == 0x20 && b[1] == 0x02) return b + 2; // 6to4
    /* "IPv4-compatible", deprecated; ::, ::1 and the like are not. */
    return has_prefix(b, zeros, 12) && (b[12] | b[13]) != 0 ? b + 12 : NULL;
}

static strait_address_class classify_v6(const unsigned char *b) {
    static const unsigned char loopback[16] = {[15] = 1};
    const unsigned char *v4 = embedded_v4(b);
    if (v4 != NULL) return classify_v4(v4_at(v4));
    if (has_prefix(b, loopback, 16)) return STRAIT_ADDRESS_LOOPBACK;
    if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80) return STRAIT_ADDRESS_LINK_LOCAL;
    if ((b[0] & 0xfe) == 0xfc || (b[0] == 0xfe && (b[1] & 0xc0) == 0xc0))
        return STRAIT_ADDRESS_PRIVATE;
    /* Global addresses begin with 2 or 3; everything else is reserved or multicast. */
    return (b[0] & 0xe0) == 0x20 ? STRAIT_ADDRESS_PUBLIC : STRAIT_ADDRESS_NONE;
}

strait_address_class strait_address_classify(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return classify_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return classify_v6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
    return STRAIT_ADDRESS_NONE;
}

strait_address_class strait_address_class_of(const char *address) {
    char host[STRAIT_ADDRESS_MAX];
    int port = 0;
    struct sockaddr_storage where;
    memset(&where, 0, sizeof where);
    if (strait_address_split(address, host, &port) != STRAIT_OK ||
        !strait_address_numeric(host, port, &where))
        return STRAIT_ADDRESS_NONE;
    return strait_address_classify((struct sockaddr *)&where);
}

strait_err strait_address_may_dial(const struct sockaddr *address, unsigned classes) {
    const strait_address_class found = strait_address_classify(address);
    if (classes == 0 || (found & classes) != 0) return STRAIT_OK;
    if (found == STRAIT_ADDRESS_NONE)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "refused to dial: an unspecified, multicast or reserved "
                                           "address is not one of a machine; announce another");
    const char *name = found == STRAIT_ADDRESS_LOOPBACK     ? "an address of this machine itself"
                       : found == STRAIT_ADDRESS_LINK_LOCAL ? "a link-local address"
                       : found == STRAIT_ADDRESS_PRIVATE    ? "a private address"
                                                            : "a public address";
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "refused to dial: it is %s, and the coordinator is not in such a network",
                       name);
}
