/* listen.c - how long a listener waits for the header of a request, and for its body. */
#include "monitor/listen.h"

#include "base/clock.h"
#include "check.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const double header_s = 0.5, patience_s = 600.0;
static atomic_int has_header;

/* Answers 200 once the body has come. */
// NOLINTNEXTLINE(readability-function-size,readability-non-const-parameter): the library's type
static enum MHD_Result answer(void *user, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request) {
    static int is_begun;
    (void)url, (void)method, (void)version, (void)upload;
    if (*request == NULL) {
        strait_connections_header(c);
        has_header = 1;
        *request = &is_begun;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    return strait_listener_reply(
        user, c, MHD_HTTP_OK, "text/plain",
        MHD_create_response_from_buffer(2, (void *)"ok", MHD_RESPMEM_PERSISTENT));
}

static void listen_on(struct strait_listener *l) {
    const strait_listener_spec spec = {.address = "127.0.0.1:0",
                                       .page = "<style></style><script></script>",
                                       .flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC,
                                       .n_connections = 8,
                                       .header_s = header_s,
                                       .answer = answer,
                                       .user = l};
    CHECK_OK(strait_listener_open(l, &spec));
}

static int connect_to(const struct strait_listener *l) {
    const long port = strtol(strrchr(l->url, ':') + 1, NULL, 10);
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = (time_t)patience_s}; // ends a hang only
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)&to, sizeof to) == 0);
    return fd;
}

static void put(int fd, const char *text) {
    CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

/* Every byte of the header comes in time for the limit of an idle connection. */
static void test_closes_headers_that_trickle_in(void **state) {
    (void)state;
    struct strait_listener l = {0};
    listen_on(&l);
    const int fd = connect_to(&l);
    const double began = strait_clock_seconds();
    char byte = 0;
    ssize_t n = -1;
    put(fd, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    while (n != 0 && strait_clock_seconds() - began < patience_s) {
        (void)send(fd, "x", 1, MSG_NOSIGNAL);
        (void)poll(NULL, 0, 20);
        strait_connections_expire(&l.connections);
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (n < 0 && errno == ECONNRESET) n = 0;
    }
    CHECK(n == 0 && strait_clock_seconds() - began > header_s);
    (void)close(fd);
    strait_listener_close(&l);
}

static void test_waits_longer_for_bodies(void **state) {
    (void)state;
    struct strait_listener l = {0};
    listen_on(&l);
    const int fd = connect_to(&l);
    char got[16] = "";
    put(fd, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na");
    while (!has_header) // a busy machine may take longer for it than header_s
        (void)poll(NULL, 0, 1);
    const double began = strait_clock_seconds();
    while (strait_clock_seconds() - began < 3.0 * header_s) {
        (void)poll(NULL, 0, 20);
        strait_connections_expire(&l.connections);
    }
    put(fd, "bc");
    CHECK(recv(fd, got, 12, MSG_WAITALL) == 12);
    assert_string_equal(got, "HTTP/1.1 200");
    for (ssize_t n = 1; n != 0;) { // without another request it is closed in time
        CHECK(strait_clock_seconds() - began < patience_s);
        strait_connections_expire(&l.connections);
        (void)poll(NULL, 0, 20);
        n = recv(fd, got, sizeof got, MSG_DONTWAIT);
    }
    (void)close(fd);
    strait_listener_close(&l);
}

static strait_err open_at(struct strait_listener *l, const char *address, const char *token) {
    const strait_listener_spec spec = {.address = address,
                                       .token = token,
                                       .page = "<style></style><script></script>",
                                       .flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC,
                                       .n_connections = 8,
                                       .header_s = 1000.0,
                                       .answer = answer,
                                       .user = l};
    *l = (struct strait_listener){0};
    return strait_listener_open(l, &spec);
}

/* An empty token would admit everyone, and one that is cut off nobody. */
static void test_rejects_tokens_of_other_lengths(void **state) {
    (void)state;
    struct strait_listener l;
    char token[STRAIT_LISTENER_TOKEN + 1] = "";
    memset(token, 'x', STRAIT_LISTENER_TOKEN);
    CHECK_FAILS(open_at(&l, "127.0.0.1:0", token), STRAIT_ECONFIG, "1 to 127 characters");
    strait_listener_close(&l);
    CHECK_FAILS(open_at(&l, "127.0.0.1:0", ""), STRAIT_ECONFIG, "1 to 127 characters");
    strait_listener_close(&l);
    token[STRAIT_LISTENER_TOKEN - 1] = '\0';
    CHECK_OK(open_at(&l, "127.0.0.1:0", token));
    assert_string_equal(l.token, token);
    strait_listener_close(&l);
}

/* 203.0.113.1 and 128.0.0.1 are not this machine's, so that nothing can listen there. */
static void test_draws_a_token_off_loopback_alone(void **state) {
    (void)state;
    static const char *const elsewhere[] = {"203.0.113.1:0", "128.0.0.1:0"};
    struct strait_listener l;
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(open_at(&l, elsewhere[i], NULL), STRAIT_ECONFIG, "cannot listen");
        assert_int_equal(strlen(l.token), 32);
        strait_listener_close(&l);
    }
    CHECK_OK(open_at(&l, "127.9.9.9:0", NULL));
    assert_string_equal(l.token, "");
    strait_listener_close(&l);
}

/* A spec may shorten the time that a header has, and not prolong it. */
static void test_limits_the_time_of_a_header(void **state) {
    (void)state;
    struct strait_listener l;
    CHECK_OK(open_at(&l, "127.0.0.1:0", NULL));
    CHECK(l.connections.header_s == (double)STRAIT_LISTENER_HEADER_S);
    strait_listener_close(&l);
}

static unsigned count_connections(struct strait_listener *l) {
    (void)pthread_mutex_lock(&l->connections.lock);
    const unsigned n = l->connections.n;
    (void)pthread_mutex_unlock(&l->connections.lock);
    return n;
}

static void await_connections(struct strait_listener *l, unsigned n) {
    const double began = strait_clock_seconds();
    while (count_connections(l) != n) {
        CHECK(strait_clock_seconds() - began < patience_s);
        (void)poll(NULL, 0, 1);
    }
}

/* A client that opens many connections and sends nothing loses the first of them. Those that are
 * closed do not count. */
static void test_closes_the_connection_that_is_idle_longest(void **state) {
    (void)state;
    struct strait_listener l;
    int fds[9];
    char byte = 0;
    CHECK_OK(open_at(&l, "127.0.0.1:0", NULL));
    for (int repeat = 0; repeat < 2; repeat++) {
        for (unsigned i = 0; i < 9; i++) {
            fds[i] = connect_to(&l);
            if (i < 8) await_connections(&l, i + 1);
            if (i == 7) CHECK(recv(fds[0], &byte, 1, MSG_DONTWAIT) < 0);
        }
        CHECK(recv(fds[0], &byte, 1, 0) == 0);
        await_connections(&l, 8);
        for (int i = 1; i < 9; i++) {
            CHECK(recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
            (void)close(fds[i]);
        }
        (void)close(fds[0]);
        await_connections(&l, 0);
    }
    strait_listener_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closes_headers_that_trickle_in),
        cmocka_unit_test(test_waits_longer_for_bodies),
        cmocka_unit_test(test_rejects_tokens_of_other_lengths),
        cmocka_unit_test(test_draws_a_token_off_loopback_alone),
        cmocka_unit_test(test_limits_the_time_of_a_header),
        cmocka_unit_test(test_closes_the_connection_that_is_idle_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
