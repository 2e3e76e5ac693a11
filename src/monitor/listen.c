#include "monitor/listen.h"

#include "base/sha256.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    READER_MEMORY = 16 << 10, // for the request of a connection and its answer's headers
    IDLE_S = 30,              // after which a connection that neither reads nor writes is closed
    SEND_BYTES = 64 << 10,    // that the kernel may hold for a connection
    TOKEN_BYTES = 16
};

/* Base64 with padding; `out` has room for it. */
static void encode(const unsigned char *data, size_t bytes, char *out) {
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    for (size_t i = 0; i < bytes; i += 3) {
        const unsigned a = data[i], b = i + 1 < bytes ? data[i + 1] : 0U;
        const unsigned c = i + 2 < bytes ? data[i + 2] : 0U;
        const unsigned bits = a << 16 | b << 8 | c;
        *out++ = digits[bits >> 18 & 63];
        *out++ = digits[bits >> 12 & 63];
        *out++ = digits[i + 1 < bytes ? bits >> 6 & 63 : 64];
        *out++ = digits[i + 2 < bytes ? bits & 63 : 64];
    }
    *out = '\0';
}

/* The hash of what is between <tag> and </tag>, as a policy names it. */
static strait_err hash_of(const char *tag, char out[64]) {
    char open[16], close[16];
    const char *text = (const char *)strait_page_html;
    strait_digest digest;
    (void)snprintf(open, sizeof open, "<%s>", tag);
    (void)snprintf(close, sizeof close, "</%s>", tag);
    const char *begin = strstr(text, open);
    const char *end = begin != NULL ? strstr(begin, close) : NULL;
    if (end == NULL) return STRAIT_FAIL(STRAIT_EDATA, "the page has no %s", open);
    begin += strlen(open);
    STRAIT_TRY(strait_sha256(begin, (size_t)(end - begin), &digest));
    encode(digest.bytes, sizeof digest.bytes, out);
    return STRAIT_OK;
}

strait_err strait_listen_policy(char *out, size_t capacity) {
    char script[64], style[64];
    STRAIT_TRY(hash_of("script", script));
    STRAIT_TRY(hash_of("style", style));
    (void)snprintf(out, capacity,
                   "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; "
                   "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'",
                   script, style);
    return STRAIT_OK;
}

/* getaddrinfo accepts ports above 65535 and wraps them. */
static int is_port(const char *text) {
    return text[0] != '\0' && strlen(text) <= 5 && strspn(text, "0123456789") == strlen(text) &&
           strtol(text, NULL, 10) <= 65535;
}

/* Splits HOST:PORT; an IPv6 host is in brackets. */
static strait_err parse(const char *address, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    char host[128] = "";
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;
    const char *from = address;
    if (n > 1 && from[0] == '[' && from[n - 1] == ']') {
        from++;
        n -= 2;
    }
    if (n > 0 && n < sizeof host) memcpy(host, from, n);
    if (strcmp(host, "localhost") == 0) (void)snprintf(host, sizeof host, "127.0.0.1");
    if (colon == NULL || host[0] == '\0' || !is_port(colon + 1) ||
        getaddrinfo(host, colon + 1, &hints, out) != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "'%s' is not an address: expected HOST:PORT with a numeric host, for "
                           "example 127.0.0.1:7777 or [::1]:7777",
                           address);
    return STRAIT_OK;
}

static int is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >>
                24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Off loopback anyone could read the page: a token is drawn unless the caller has one. */
static strait_err choose_token(struct strait_monitor *m, const char *token, int is_local) {
    unsigned char random[TOKEN_BYTES];
    if (token != NULL && (token[0] == '\0' || strlen(token) >= sizeof m->token))
        return STRAIT_FAIL(STRAIT_ECONFIG, "the token must have 1 to %zu characters",
                           sizeof m->token - 1);
    for (const char *c = token; c != NULL && *c != '\0'; c++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *c) ==
            NULL)
            return STRAIT_FAIL(STRAIT_ECONFIG, "the token may have letters, digits and -._~ only");
    if (token != NULL || is_local) {
        (void)snprintf(m->token, sizeof m->token, "%s", token != NULL ? token : "");
        return STRAIT_OK;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return STRAIT_FAIL(STRAIT_EIO, "the system has no random numbers for a token");
    for (size_t i = 0; i < TOKEN_BYTES; i++)
        (void)snprintf(m->token + 2 * i, 3, "%02x", random[i]);
    return STRAIT_OK;
}

/* By default the kernel may hold megabytes for a reader that does not read. */
static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what) {
    const int bytes = SEND_BYTES;
    (void)user, (void)context;
    if (what != MHD_CONNECTION_NOTIFY_STARTED) return;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL)
        (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void compose_url(struct strait_monitor *m, const struct sockaddr *address) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const unsigned port = info != NULL ? info->port : 0;
    char host[INET6_ADDRSTRLEN + 2] = "";
    const socklen_t bytes = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                           : sizeof(struct sockaddr_in);
    (void)getnameinfo(address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    const int is_v6 = address->sa_family == AF_INET6;
    (void)snprintf(m->url, sizeof m->url, "http://%s%s%s:%u/%s%s", is_v6 ? "[" : "", host,
                   is_v6 ? "]" : "", port, m->token[0] != '\0' ? "?token=" : "", m->token);
}

/* The daemon has no thread of its own: ours runs it, so that streams need no lock. */
static strait_err start(struct strait_monitor *m, const char *address,
                        const struct addrinfo *where) {
    char why[128] = "";
    const unsigned v6 = where->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    errno = 0;
    m->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | v6, 0, NULL, NULL,
                                 strait_monitor_answer, m, MHD_OPTION_SOCK_ADDR, where->ai_addr,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)STRAIT_MONITOR_READERS,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)READER_MEMORY,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL, MHD_OPTION_END);
    if (m->daemon != NULL) return STRAIT_OK;
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_ECONFIG, "cannot listen on %s: %s; choose another port (0: any)",
                       address, why);
}

strait_err strait_listen_open(struct strait_monitor *m, const char *address, const char *token) {
    struct addrinfo *where = NULL;
    STRAIT_TRY(parse(address, &where));
    strait_err err = choose_token(m, token, is_loopback(where->ai_addr));
    if (err == STRAIT_OK) err = start(m, address, where);
    if (err == STRAIT_OK) compose_url(m, where->ai_addr);
    freeaddrinfo(where);
    return err;
}
