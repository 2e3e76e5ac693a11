#include "monitor/listen.h"

#include "base/digest/sha256.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    READER_MEMORY = 16 << 10, // for the request of a connection and its answer's headers
    CLOSING = 64,             // connections that may be about to close, besides those that are open
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
static strait_err hash_of(const char *text, const char *tag, char out[64]) {
    char open[16], close[16];
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

/* Only the script and the style of the page, by their hashes, and requests to where it came from.
 */
static strait_err write_policy(const char *page, char *out, size_t capacity) {
    char script[64], style[64];
    STRAIT_TRY(hash_of(page, "script", script));
    STRAIT_TRY(hash_of(page, "style", style));
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
static strait_err choose_token(struct strait_listener *l, const char *token, int is_local) {
    unsigned char random[TOKEN_BYTES];
    if (token != NULL && (token[0] == '\0' || strlen(token) >= sizeof l->token))
        return STRAIT_FAIL(STRAIT_ECONFIG, "the token must have 1 to %zu characters",
                           sizeof l->token - 1);
    for (const char *c = token; c != NULL && *c != '\0'; c++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *c) ==
            NULL)
            return STRAIT_FAIL(STRAIT_ECONFIG, "the token may have letters, digits and -._~ only");
    if (token != NULL || is_local) {
        (void)snprintf(l->token, sizeof l->token, "%s", token != NULL ? token : "");
        return STRAIT_OK;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return STRAIT_FAIL(STRAIT_EIO, "the system has no random numbers for a token");
    for (size_t i = 0; i < TOKEN_BYTES; i++)
        (void)snprintf(l->token + 2 * i, 3, "%02x", random[i]);
    return STRAIT_OK;
}

/* The request has been answered, or its client has gone: the connection waits for the next one. */
static void on_completed(void *user, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode why) {
    struct strait_listener *l = user;
    strait_connections_end(connection);
    if (l->completed != NULL) l->completed(l->user, connection, request, why);
}

static void compose_url(struct strait_listener *l, const struct sockaddr *address) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const unsigned port = info != NULL ? info->port : 0;
    char host[INET6_ADDRSTRLEN + 2] = "";
    const socklen_t bytes = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                           : sizeof(struct sockaddr_in);
    (void)getnameinfo(address, bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    const int is_v6 = address->sa_family == AF_INET6;
    (void)snprintf(l->url, sizeof l->url, "http://%s%s%s:%u/%s%s", is_v6 ? "[" : "", host,
                   is_v6 ? "]" : "", port, l->token[0] != '\0' ? "?token=" : "", l->token);
}

static strait_err start(struct strait_listener *l, const strait_listener_spec *spec,
                        const struct addrinfo *where) {
    char why[128] = "";
    const unsigned v6 = where->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0;
    const double most_s = STRAIT_LISTENER_HEADER_S;
    const double header_s = spec->header_s > 0 && spec->header_s < most_s ? spec->header_s : most_s;
    STRAIT_TRY(strait_connections_init(&l->connections, spec->n_connections, header_s));
    l->completed = spec->completed;
    l->user = spec->user;
    errno = 0;
    l->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | v6 | spec->flags, 0, NULL, NULL, spec->answer,
        spec->user, MHD_OPTION_SOCK_ADDR, where->ai_addr, MHD_OPTION_CONNECTION_LIMIT,
        spec->n_connections + CLOSING, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)READER_MEMORY,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)STRAIT_LISTENER_IDLE_S,
        MHD_OPTION_NOTIFY_CONNECTION, strait_connections_notify, &l->connections,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, l, MHD_OPTION_END);
    if (l->daemon != NULL) return STRAIT_OK;
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_ECONFIG, "cannot listen on %s: %s; choose another port (0: any)",
                       spec->address, why);
}

strait_err strait_listener_open(struct strait_listener *l, const strait_listener_spec *spec) {
    struct addrinfo *where = NULL;
    STRAIT_TRY(write_policy(spec->page, l->policy, sizeof l->policy));
    STRAIT_TRY(parse(spec->address, &where));
    strait_err err = choose_token(l, spec->token, is_loopback(where->ai_addr));
    if (err == STRAIT_OK) err = start(l, spec, where);
    if (err == STRAIT_OK) compose_url(l, where->ai_addr);
    freeaddrinfo(where);
    return err;
}

void strait_listener_close(struct strait_listener *l) {
    if (l->daemon != NULL) MHD_stop_daemon(l->daemon);
    l->daemon = NULL;
    strait_connections_fini(&l->connections);
}

/* Compares without revealing by its duration how many characters agree. */
static int is_token(const char *given, const char *wanted) {
    const size_t n = strlen(wanted);
    unsigned differs = strlen(given) != n;
    for (size_t i = 0; i < n && given[i] != '\0'; i++)
        differs |= (unsigned)((unsigned char)given[i] ^ (unsigned char)wanted[i]);
    return !differs;
}

static const char *header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* "Authorization: Bearer TOKEN", or ?token=TOKEN for browsers, which cannot send the other. */
static int has_token(const struct strait_listener *l, struct MHD_Connection *c) {
    const char *query = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token");
    const char *bearer = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    if (query != NULL && is_token(query, l->token)) return 1;
    return bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0 &&
           is_token(bearer + 7, l->token);
}

/* Without a token the name in the request must be one of loopback: a site whose name resolves to
 * 127.0.0.1 could otherwise read the page through its visitor's browser. */
static int is_local_name(struct MHD_Connection *c) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = header(c, MHD_HTTP_HEADER_HOST);
    if (host == NULL) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':')) return 1;
    }
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.:") == strlen(host);
}

unsigned strait_listener_refuses(const struct strait_listener *l, struct MHD_Connection *c) {
    if (l->token[0] != '\0') return has_token(l, c) ? 0 : MHD_HTTP_UNAUTHORIZED;
    return is_local_name(c) ? 0 : MHD_HTTP_FORBIDDEN;
}

static void add(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

/* Nothing from elsewhere is loaded, nobody may frame the page, and nothing is kept by caches. */
enum MHD_Result strait_listener_reply(const struct strait_listener *l, struct MHD_Connection *c,
                                      unsigned code, const char *type,
                                      struct MHD_Response *response) {
    if (response == NULL) return MHD_NO;
    strait_connections_begin(c);
    add(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    add(response, "Content-Security-Policy", l->policy);
    add(response, "X-Content-Type-Options", "nosniff");
    add(response, "X-Frame-Options", "DENY");
    add(response, "Referrer-Policy", "no-referrer");
    add(response, "Cross-Origin-Resource-Policy", "same-origin");
    add(response, "Cross-Origin-Opener-Policy", "same-origin");
    add(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (code == MHD_HTTP_UNAUTHORIZED) add(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    const enum MHD_Result result = MHD_queue_response(c, code, response);
    MHD_destroy_response(response);
    return result;
}
