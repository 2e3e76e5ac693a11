/* reachability.c - see reachability.h. Uses blocking calls: only called while a worker starts. */
#include "net/core/reachability.h"

#include "net/core/address.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Finds the local address that the system would use towards `to`. Connecting a datagram socket
 * sends nothing; it only makes the kernel choose the route and with it the source address. */
static int find_source(const struct addrinfo *to, char *out, size_t capacity) {
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    const int fd = socket(to->ai_family, SOCK_DGRAM, 0);
    if (fd < 0) return 0;
    const int is_found = connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                         getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                         getnameinfo((struct sockaddr *)&own, size, out, (socklen_t)capacity, NULL,
                                     0, NI_NUMERICHOST) == 0;
    (void)close(fd);
    return is_found;
}

/* Resolves `towards` and finds the local address used to reach it; 0 when that fails. */
static int find_own(const char *towards, char *out, size_t capacity) {
    char host[STRAIT_ADDRESS_MAX];
    char service[8];
    int port = 0;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    if (strait_address_split(towards, host, &port) != STRAIT_OK) return 0;
    (void)snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0) return 0;
    const int is_found = find_source(found, out, capacity);
    freeaddrinfo(found);
    return is_found;
}

/* Formats host:port, with brackets around an IPv6 address. */
static void join(const char *host, int port, char out[STRAIT_ADDRESS_MAX]) {
    const int is_v6 = strchr(host, ':') != NULL && host[0] != '[';
    (void)snprintf(out, STRAIT_ADDRESS_MAX, is_v6 ? "[%.200s]:%d" : "%.200s:%d", host, port);
}

/* An IPv6 address without brackets, such as "::1": its colons do not separate a port. */
static int is_bare_v6(const char *address) {
    return address[0] != '[' && strchr(address, ':') != strrchr(address, ':');
}

/* Whether `text` is a host name or a numeric address without a port; "[::1]" is one too. */
static int is_host(const char *text) {
    /* A strict set: the address is shown to people and sent to other machines. */
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  ".-_%";
    const size_t length = strlen(text);
    const int is_v6 = is_bare_v6(text) || (text[0] == '[' && text[length - 1] == ']');
    const size_t first = strspn(text, is_v6 ? "[" : "");
    if (first > 1 || length <= 2 * first) return 0;
    for (size_t i = first; i < length - first; i++)
        if (strchr(letters, text[i]) == NULL && !(is_v6 && text[i] == ':')) return 0;
    return 1;
}

strait_err strait_reachability_check(const char *address, int needs_port) {
    char host[STRAIT_ADDRESS_MAX];
    int port = 0;
    if (strlen(address) < STRAIT_ADDRESS_MAX) {
        if (!needs_port && is_host(address)) return STRAIT_OK;
        if (!is_bare_v6(address) && strait_address_split(address, host, &port) == STRAIT_OK &&
            port > 0 && is_host(host))
            return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_ECONFIG, "address '%.80s': expected %s", address,
                       needs_port ? "HOST:PORT" : "HOST or HOST:PORT");
}

void strait_reachability_address(const char *bound, const char *wanted, const char *towards,
                                 char out[STRAIT_ADDRESS_MAX]) {
    char host[STRAIT_ADDRESS_MAX];
    char own[STRAIT_ADDRESS_MAX];
    int port = 0;
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%.255s", bound);
    if (strait_address_split(bound, host, &port) != STRAIT_OK) return;
    if (wanted[0] != '\0') {
        int own_port = 0;
        const int is_whole = !is_bare_v6(wanted) &&
                             strait_address_split(wanted, own, &own_port) == STRAIT_OK;
        if (is_whole)
            (void)snprintf(out, STRAIT_ADDRESS_MAX, "%.255s", wanted);
        else
            join(wanted, port, out);
        return;
    }
    if (strcmp(host, "0.0.0.0") != 0 && strcmp(host, "::") != 0) return;
    if (find_own(towards, own, sizeof own)) join(own, port, out);
}
