/* address.c - parsing, formatting and listening; the syntax is defined in address.h. */
#include "net/core/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

strait_err strait_address_split(const char *address, char host[STRAIT_ADDRESS_MAX], int *port) {
    /* The last colon: an IPv6 address has others, which the brackets enclose. */
    const char *colon = strrchr(address, ':');
    const char *from = address, *to = colon; // the host
    if (colon != NULL && address[0] == '[' && colon > address + 1 && colon[-1] == ']') {
        from = address + 1;
        to = colon - 1;
    }
    char *end = NULL;
    const long number = colon != NULL && colon[1] != 0 ? strtol(colon + 1, &end, 10) : -1;
    if (number < 0 || number > 65535 || *end != 0 || to == from || to - from >= STRAIT_ADDRESS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "address '%.80s': expected host:port with a port from 0 to 65535",
                           address);
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = 0;
    *port = (int)number;
    return STRAIT_OK;
}

/* uv_ip4_addr and uv_ip6_addr never resolve names, so this cannot block. */
int strait_address_numeric(const char *host, int port, struct sockaddr_storage *out) {
    return uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, port, (struct sockaddr_in6 *)out) == 0;
}

static void format(const struct sockaddr_storage *name, char out[STRAIT_ADDRESS_MAX]) {
    char host[STRAIT_ADDRESS_MAX / 2] = "";
    (void)uv_ip_name((const struct sockaddr *)name, host, sizeof host);
    /* The brackets keep the colons of an IPv6 address apart from that of the port. */
    const int is_v6 = name->ss_family == AF_INET6;
    const int port = ntohs(is_v6 ? ((const struct sockaddr_in6 *)name)->sin6_port
                                 : ((const struct sockaddr_in *)name)->sin_port);
    (void)snprintf(out, STRAIT_ADDRESS_MAX, is_v6 ? "[%s]:%d" : "%s:%d", host, port);
}

void strait_address_bound(const uv_tcp_t *tcp, char out[STRAIT_ADDRESS_MAX]) {
    struct sockaddr_storage name; // zeroed, in case the call fails
    int size = sizeof name;
    memset(&name, 0, sizeof name);
    (void)uv_tcp_getsockname(tcp, (struct sockaddr *)&name, &size);
    format(&name, out);
}

void strait_address_remote(const uv_tcp_t *tcp, char out[STRAIT_ADDRESS_MAX]) {
    struct sockaddr_storage name;
    int size = sizeof name;
    memset(&name, 0, sizeof name);
    if (uv_tcp_getpeername(tcp, (struct sockaddr *)&name, &size) == 0)
        format(&name, out);
    else
        (void)snprintf(out, STRAIT_ADDRESS_MAX, "unknown address");
}

const struct sockaddr *strait_address_pick(const struct addrinfo *found, unsigned n_tries) {
    unsigned n = 1; // a successful lookup returns at least one address
    for (const struct addrinfo *at = found->ai_next; at != NULL; at = at->ai_next)
        n++;
    for (n_tries %= n; n_tries > 0; n_tries--)
        found = found->ai_next;
    return found->ai_addr;
}

strait_err strait_address_listen(uv_tcp_t *listener, const char *address, int backlog,
                                 uv_connection_cb on_connection, char out[STRAIT_ADDRESS_MAX]) {
    char host[STRAIT_ADDRESS_MAX];
    int port = 0;
    struct sockaddr_storage where;
    memset(&where, 0, sizeof where);
    STRAIT_TRY(strait_address_split(address, host, &port));
    /* Only numeric addresses: which interface a name stands for depends on the resolver. */
    if (!strait_address_numeric(host, port, &where))
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot listen at '%s': expected a numeric address such as 0.0.0.0:7000",
                           address);
    int status = uv_tcp_bind(listener, (struct sockaddr *)&where, 0);
    if (status == 0) status = uv_listen((uv_stream_t *)listener, backlog, on_connection);
    if (status == UV_EADDRINUSE)
        return STRAIT_FAIL(STRAIT_EINUSE,
                           "cannot listen at %s: %s; choose another port or stop the program that "
                           "uses it",
                           address, uv_strerror(status));
    if (status != 0)
        return STRAIT_FAIL(
            STRAIT_EINVAL,
            "cannot listen at %s: %s; expected an address of this machine and a port "
            "that this user may open",
            address, uv_strerror(status));
    strait_address_bound(listener, out);
    return STRAIT_OK;
}
