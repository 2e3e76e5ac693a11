#include "own_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>

/* Formats an interface's address. Returns 0 for loopback, link-local and other families. */
static int is_public(const struct ifaddrs *i, int family, char *out) {
    if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family ||
        (i->ifa_flags & IFF_LOOPBACK) != 0)
        return 0;
    if (family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        return inet_ntop(AF_INET, &in->sin_addr, out, INET6_ADDRSTRLEN) != NULL;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
    return !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) &&
           inet_ntop(AF_INET6, &in6->sin6_addr, out, INET6_ADDRSTRLEN) != NULL;
}

void strait_own_addresses(int has_v6, char out[STRAIT_ADDRESS_MAX]) {
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all = NULL;
    size_t used = 0;
    out[0] = '\0';
    if (getifaddrs(&all) != 0) return;
    for (int f = 0; f < 1 + (has_v6 != 0); f++) {
        char text[INET6_ADDRSTRLEN];
        const struct ifaddrs *i = all;
        while (i != NULL && !is_public(i, families[f], text))
            i = i->ifa_next;
        if (i == NULL) continue;
        const int n = snprintf(out + used, STRAIT_ADDRESS_MAX - used, "%s%s", used > 0 ? "," : "",
                               text);
        used += n > 0 ? (size_t)n : 0;
    }
    freeifaddrs(all);
}
