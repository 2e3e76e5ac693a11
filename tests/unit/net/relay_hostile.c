/* A relay that reports a peer at once, each time it is dialled, although no peer has come. */
#include "net/relay/relay_wire.h"
#include "tcp_rig.h"

enum {
    PAIRS = 60,
    OPEN_MAX = 40 // of those in the handshake and the one that waits
};

/* Where a hostile relay listens; writes the address that b listens at. */
static int listen_as_relay(char address[STRAIT_ADDRESS_MAX]) {
    const strait_relay_token token = {{1}};
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof where;
    char text[64];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&where, size) == 0 && listen(listener, PAIRS) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&where, &size) == 0);
    (void)snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(where.sin_port));
    CHECK_OK(strait_relay_address_print(text, &token, address, STRAIT_ADDRESS_MAX));
    return listener;
}

/* Waits for b to connect, and pairs it. */
static int pair_next(int listener) {
    unsigned char request[STRAIT_RELAY_REQUEST], reply[STRAIT_RELAY_REPLY];
    ssize_t n = 0;
    int fd = -1;
    while ((fd = accept(listener, NULL, NULL)) < 0)
        rig_rest(&r, 1);
    while (n < (ssize_t)sizeof request) {
        const ssize_t got = recv(fd, request + n, sizeof request - (size_t)n, MSG_DONTWAIT);
        if (got > 0) n += got;
        rig_rest(&r, 1);
    }
    strait_relay_reply_pack(STRAIT_RELAY_OK, reply);
    CHECK(send(fd, reply, sizeof reply, MSG_NOSIGNAL) == sizeof reply);
    return fd;
}

static int is_open(int fd) {
    char byte = 0;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Each stream takes some 200 KB until its handshake is late. */
static void a_relay_cannot_open_streams_without_limit(void **state) {
    (void)state;
    char address[STRAIT_ADDRESS_MAX], bound[STRAIT_ADDRESS_MAX];
    int fds[PAIRS];
    int n_open = 0;
    r.config.handshake_ms = 600000;
    rig_start(&r);
    const int listener = listen_as_relay(address);
    CHECK_OK(strait_transport_listen(r.b.t, address, bound));
    for (int i = 0; i < PAIRS; i++)
        fds[i] = pair_next(listener);
    rig_rest(&r, 50);
    for (int i = 0; i < PAIRS; i++)
        n_open += is_open(fds[i]);
    CHECK(n_open > 0 && n_open <= OPEN_MAX);
    CHECK(is_open(fds[PAIRS - 1]) && !is_open(fds[0])); // a peer that is there proves its key soon
    (void)rig_dial(&r);                                 // others are served
    CHECK(rig_drive(&r, rig_both_open, 60000));
    for (int i = 0; i < PAIRS; i++)
        (void)close(fds[i]);
    (void)close(listener);
}

/* Nor can it keep the net thread busy with connecting. */
static void connects_to_a_relay_at_a_limited_rate(void **state) {
    (void)state;
    enum {
        MANY = 110,
        LEAST_MS = 1000 // of which most can come at once
    };
    char address[STRAIT_ADDRESS_MAX], bound[STRAIT_ADDRESS_MAX];
    rig_start(&r);
    const int listener = listen_as_relay(address);
    CHECK_OK(strait_transport_listen(r.b.t, address, bound));
    const int64_t began = strait_clock_ns();
    for (int i = 0; i < MANY; i++)
        (void)close(pair_next(listener));
    CHECK(strait_clock_ns() - began > LEAST_MS * INT64_C(1000000));
    (void)close(listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(a_relay_cannot_open_streams_without_limit),
        WITH_RIG(connects_to_a_relay_at_a_limited_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
