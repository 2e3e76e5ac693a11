#include "monitor/fetch.h"

#include "base/alloc.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 16 << 20, // far more than a history of 4096 points
    WAIT_S = 5
};

/* The parts of a URL. */
struct place {
    char host[256], port[8], token[256];
};

static strait_err parse(const char *url, struct place *out) {
    const char *from = strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
    *out = (struct place){.port = "80"};
    size_t n = 0;
    if (from != NULL && from[0] == '[') {
        n = strcspn(++from, "]");
        if (from[n] != ']') from = NULL;
    } else if (from != NULL) {
        n = strcspn(from, ":/?");
    }
    if (from == NULL || n == 0 || n >= sizeof out->host)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected http://HOST:PORT", url);
    memcpy(out->host, from, n);
    from += n + (from[n] == ']');
    if (from[0] == ':') {
        n = strspn(++from, "0123456789");
        if (n == 0 || n >= sizeof out->port)
            return STRAIT_FAIL(STRAIT_ECONFIG, "%s: expected http://HOST:PORT", url);
        memset(out->port, 0, sizeof out->port);
        memcpy(out->port, from, n);
    }
    const char *token = strstr(from, "token=");
    if (token != NULL)
        (void)snprintf(out->token, sizeof out->token, "%.*s", (int)strcspn(token + 6, "&#"),
                       token + 6);
    return STRAIT_OK;
}

static int dial(const struct place *place) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval wait = {.tv_sec = WAIT_S};
    struct addrinfo *all = NULL;
    int fd = -1;
    if (getaddrinfo(place->host, place->port, &hints, &all) != 0) return -1;
    for (const struct addrinfo *a = all; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) continue;
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(all);
    return fd;
}

/* Sends a request of HTTP/1.0, whose answer ends with the connection, and reads it all. */
static strait_err exchange(int fd, const struct place *place, const char *path, char **out,
                           size_t *bytes) {
    char request[1024];
    void *memory = NULL;
    size_t capacity = 0, used = 0;
    ssize_t n = snprintf(request, sizeof request,
                         "GET %s HTTP/1.0\r\nHost: %s:%s\r\n%s%s%sConnection: close\r\n\r\n", path,
                         place->host, place->port,
                         place->token[0] != '\0' ? "Authorization: Bearer " : "", place->token,
                         place->token[0] != '\0' ? "\r\n" : "");
    if (n < 0 || (size_t)n >= sizeof request || send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the connection was closed");
    for (;;) {
        if (used + 1 >= capacity) {
            const size_t want = 2 * capacity + 65536;
            strait_err err = STRAIT_OK;
            if (want > ANSWER_MAX)
                err = STRAIT_FAIL(STRAIT_EDATA, "the answer is too long");
            else
                err = strait_alloc_grow(&memory, capacity, want, 1, "answer");
            if (err != STRAIT_OK) {
                strait_alloc_free(memory);
                return err;
            }
            capacity = want;
        }
        n = recv(fd, (char *)memory + used, capacity - used - 1, 0);
        if (n <= 0) break;
        used += (size_t)n;
    }
    ((char *)memory)[used] = '\0';
    *out = memory;
    *bytes = used;
    if (n == 0) return STRAIT_OK;
    strait_alloc_free(memory);
    return STRAIT_FAIL(STRAIT_ECLOSED, "no answer within %d s", WAIT_S);
}

static strait_err parse_answer(const char *text, size_t bytes, json_t **out) {
    const char *body = strstr(text, "\r\n\r\n");
    const int status = strncmp(text, "HTTP/1.", 7) == 0 && bytes > 12
                           ? (int)strtol(text + 9, NULL, 10)
                           : 0;
    if (status == 401)
        return STRAIT_FAIL(STRAIT_EAUTH, "a token is needed: give the whole address that strait "
                                         "printed, with ?token=");
    if (status != 200 || body == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "not the page of a run (status %d)", status);
    body += 4;
    return strait_json_parse(body, bytes - (size_t)(body - text), out);
}

strait_err strait_fetch_json(const char *url, const char *path, json_t **out) {
    struct place place;
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(parse(url, &place));
    const int fd = dial(&place);
    strait_err err = STRAIT_OK;
    if (fd < 0)
        err = STRAIT_FAIL(STRAIT_ECLOSED,
                          "nobody answers there: the run has ended, or has no page (--page)");
    else
        err = exchange(fd, &place, path, &text, &bytes);
    if (err == STRAIT_OK) err = parse_answer(text, bytes, out);
    if (err != STRAIT_OK) strait_err_prefix("http://%s:%s", place.host, place.port);
    strait_alloc_free(text);
    if (fd >= 0) (void)close(fd);
    return err;
}
