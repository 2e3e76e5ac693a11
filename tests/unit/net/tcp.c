/* The tls transport over real sockets: what a relay in the middle counts, sees and breaks, and what
 * a hostile client is told. */
#include "base/clock.h"
#include "contract/transport_rig.h"
#include "net/core/frame.h"
#include "net/tls/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rig r;

static int set_up(void **state) {
    (void)state;
    rig_open(&r, "tls");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    rig_close(&r);
    return 0;
}

static struct sockaddr_in address_of(const char *text) {
    struct sockaddr_in where = {.sin_family = AF_INET};
    const char *colon = strrchr(text, ':');
    CHECK(colon != NULL);
    where.sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
}

static int connect_to(const char *text) {
    const struct sockaddr_in where = address_of(text);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&where, sizeof where) == 0);
    return fd;
}

/* ---- a relay that counts ---- */

struct relay {
    int listener;
    char target[STRAIT_ADDRESS_MAX];
    atomic_ullong n_forward, n_backward; // bytes passed on
    unsigned long long cut_after;        // of n_forward; 0: never
    pthread_t thread;
};

static int pass_on(int from, int to, atomic_ullong *count, unsigned long long limit) {
    unsigned char buffer[4096];
    const ssize_t n = read(from, buffer, sizeof buffer);
    if (n <= 0) return 0;
    for (ssize_t done = 0; done < n;) {
        const ssize_t m = write(to, buffer + done, (size_t)(n - done));
        if (m <= 0) return 0;
        done += m;
    }
    return atomic_fetch_add(count, (unsigned long long)n) + (unsigned long long)n < limit;
}

static void *run_relay(void *arg) {
    struct relay *relay = arg;
    const int a = accept(relay->listener, NULL, NULL);
    const int b = connect_to(relay->target);
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    const unsigned long long limit = relay->cut_after > 0 ? relay->cut_after : ~0ULL;
    int is_good = 1;
    while (is_good && poll(fds, 2, 60000) > 0) {
        if (fds[0].revents != 0) is_good = pass_on(a, b, &relay->n_forward, limit);
        if (is_good && fds[1].revents != 0) is_good = pass_on(b, a, &relay->n_backward, ~0ULL);
    }
    (void)close(a);
    (void)close(b);
    return NULL;
}

/* Puts a relay before b. */
static void start_relay(struct relay *relay) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof where;
    relay->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(relay->listener, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(listen(relay->listener, 1) == 0);
    CHECK(getsockname(relay->listener, (struct sockaddr *)&where, &size) == 0);
    memcpy(relay->target, r.b.address, sizeof relay->target);
    (void)snprintf(r.b.address, sizeof r.b.address, "127.0.0.1:%d", ntohs(where.sin_port));
    CHECK(pthread_create(&relay->thread, NULL, run_relay, relay) == 0);
}

static void stop_relay(struct relay *relay) {
    pthread_join(relay->thread, NULL);
    (void)close(relay->listener);
}

static int b_has_fifty(const struct rig *x) {
    return x->b.n_got >= 50;
}

static void test_counts_are_exact(void **state) {
    (void)state;
    struct relay relay = {0};
    r.config.n_streams = 1;
    r.config.ping_ms = 100000; // no beats between the two looks
    rig_start(&r);
    start_relay(&relay);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000));
    for (uint32_t i = 0; i < 50; i++) {
        struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_ACTIVATION, i, i * 997);
        while (strait_link_send(r.a.link, &msg) == STRAIT_EAGAIN)
            rig_rest(&r, 1);
    }
    CHECK(rig_drive(&r, b_has_fifty, 60000));
    strait_link_stats a, b;
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    do { // what is under way arrives
        rig_rest(&r, 20);
        r.a.t->ops->stats(r.a.link, &a);
        r.b.t->ops->stats(r.b.link, &b);
    } while (strait_clock_ns() < until &&
             (b.received_bytes != a.sent_bytes || a.received_bytes != b.sent_bytes));
    CHECK(a.sent_bytes == atomic_load(&relay.n_forward) && b.received_bytes == a.sent_bytes);
    CHECK(b.sent_bytes == atomic_load(&relay.n_backward) && a.received_bytes == b.sent_bytes);
    const uint64_t payload = 997ULL * 49 * 50 / 2;
    CHECK(a.sent_payload == payload);
    /* 32 bytes a frame, 22 a record, and a handshake. */
    CHECK(a.sent_bytes > payload + 50 * 32 && a.sent_bytes < payload + 50 * 32 + 200 * 22 + 2000);
    CHECK(a.n_streams == 1 && a.tcp_rtt_s > 0 && a.congestion[0] != 0);
    strait_link_close(r.a.link, STRAIT_OK);
    CHECK(rig_drive(&r, rig_both_closed, 60000));
    stop_relay(&relay);
}

/* A microbatch of 2,048 tokens of 16 bytes: framing and encryption cost less than one percent. */
static void test_overhead_of_a_crossing(void **state) {
    (void)state;
    r.config.ping_ms = 100000;
    rig_connect(&r);
    rig_rest(&r, 50);
    strait_link_stats before, after;
    r.a.t->ops->stats(r.a.link, &before);
    for (uint32_t i = 0; i < 50; i++) {
        struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_ACTIVATION, i, 2048 * 16);
        while (strait_link_send(r.a.link, &msg) == STRAIT_EAGAIN)
            rig_rest(&r, 1);
    }
    CHECK(rig_drive(&r, b_has_fifty, 60000));
    rig_rest(&r, 50);
    r.a.t->ops->stats(r.a.link, &after);
    const double per_token = (double)(after.sent_bytes - before.sent_bytes) / (50 * 2048);
    CHECK(per_token > 16 && per_token < 16.06);
}

static void test_death_in_mid_frame(void **state) {
    (void)state;
    struct relay relay = {.cut_after = 200000};
    rig_start(&r);
    start_relay(&relay);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000));
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_ACTIVATION, 1, 4000000);
    CHECK_OK(strait_link_send(r.a.link, &msg));
    CHECK(rig_drive(&r, rig_both_closed, 60000));
    CHECK(r.b.n_got == 0 && r.b.why == STRAIT_ECLOSED && r.a.why == STRAIT_ECLOSED);
    CHECK(strstr(r.b.reason, "mid-frame") != NULL || strstr(r.b.reason, "reset") != NULL);
    stop_relay(&relay);
}

static void test_names_are_looked_up(void **state) {
    (void)state;
    rig_start(&r);
    const char *colon = strrchr(r.b.address, ':');
    char named[STRAIT_ADDRESS_MAX];
    (void)snprintf(named, sizeof named, "localhost%s", colon);
    struct strait_link *link = NULL;
    const strait_dial_params params = {.expected = strait_identity_fingerprint(r.b.identity)};
    CHECK_OK(strait_transport_dial(r.a.t, named, params, &link));
    CHECK(rig_drive(&r, rig_both_open, 60000));
    CHECK_FAILS(strait_transport_dial(r.a.t, "nowhere", params, &link), STRAIT_EINVAL,
                "address 'nowhere': expected host:port");
    CHECK_FAILS(strait_transport_dial(r.a.t, "host:99999", params, &link), STRAIT_EINVAL,
                "host:port");
    CHECK_FAILS(strait_transport_listen(r.a.t, "localhost:0", named), STRAIT_EINVAL,
                "expected a numeric address such as 0.0.0.0:7000");
}

/* ---- hostile clients ---- */

static int b_refused_one(const struct rig *x) {
    return x->b.n_refused > 0;
}

static int b_is_rid_of_us(const struct rig *x) {
    return x->b.n_refused + x->b.n_closed > 0;
}

static void test_not_tls(void **state) {
    (void)state;
    rig_start(&r);
    const int fd = connect_to(r.b.address);
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    CHECK(write(fd, request, sizeof request - 1) == sizeof request - 1);
    CHECK(rig_drive(&r, b_refused_one, 60000));
    CHECK(r.b.why_refused == STRAIT_EPROTO && strstr(r.b.reason_refused, "tls handshake") != NULL);
    (void)close(fd);
}

static void test_silent_stranger(void **state) {
    (void)state;
    r.config.handshake_ms = 100;
    rig_start(&r);
    const int fd = connect_to(r.b.address);
    CHECK(rig_drive(&r, b_refused_one, 60000));
    CHECK(r.b.why_refused == STRAIT_ETIMEDOUT);
    CHECK(strstr(r.b.reason_refused, "no handshake within 100 ms") != NULL);
    (void)close(fd);
}

/* A client that does TLS by the book and then sends whatever it likes. */
struct hostile {
    int fd;
    struct strait_tls *tls;
    unsigned char heard[4096];
    size_t n_heard;
    int is_over;
};

static void exchange(struct hostile *h) {
    unsigned char buffer[16384];
    size_t n = 0;
    while ((n = strait_tls_take(h->tls, buffer, sizeof buffer)) > 0)
        CHECK(write(h->fd, buffer, n) == (ssize_t)n || errno == EPIPE || errno == ECONNRESET);
    const ssize_t got = recv(h->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) h->is_over = 1;
    if (got > 0) CHECK(strait_tls_feed(h->tls, buffer, (size_t)got) == (size_t)got);
    CHECK_OK(r.b.t->ops->progress(r.b.t, 1));
}

static void hostile_open(struct hostile *h) {
    *h = (struct hostile){0};
    rig_start(&r);
    h->fd = connect_to(r.b.address);
    CHECK_OK(strait_tls_open(r.a.identity, 0, &h->tls));
    strait_err err = STRAIT_EAGAIN;
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    while ((err = strait_tls_handshake(h->tls)) == STRAIT_EAGAIN && strait_clock_ns() < until)
        exchange(h);
    CHECK_OK(err);
    CHECK(strait_fingerprint_equal(strait_tls_peer(h->tls),
                                   strait_identity_fingerprint(r.b.identity)));
}

/* Sends raw bytes and listens until b hangs up. */
static void hostile_say(struct hostile *h, const void *bytes, size_t n) {
    if (n > 0) CHECK_OK(strait_tls_write(h->tls, bytes, n));
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    while (!h->is_over && strait_clock_ns() < until) {
        exchange(h);
        size_t got = 0;
        if (h->n_heard < sizeof h->heard &&
            strait_tls_read(h->tls, h->heard + h->n_heard, sizeof h->heard - h->n_heard, &got) ==
                STRAIT_OK)
            h->n_heard += got;
    }
    CHECK(shutdown(h->fd, SHUT_RDWR) == 0 || errno == ENOTCONN);
    CHECK(rig_drive(&r, b_is_rid_of_us, 60000)); // it notices that we hung up
    rig_rest(&r, 20);
}

static void hostile_close(struct hostile *h) {
    (void)close(h->fd);
    strait_tls_close(&h->tls);
    rig_rest(&r, 20);
}

static int was_told(const struct hostile *h, const char *reason) {
    const size_t n = strlen(reason);
    for (size_t i = 0; i + n <= h->n_heard; i++)
        if (memcmp(h->heard + i, reason, n) == 0) return 1;
    return 0;
}

static size_t frame_of(struct strait_msg **msg, uint32_t run, unsigned char *out) {
    strait_frame_write(*msg, run, out);
    memcpy(out + STRAIT_FRAME_HEADER, (*msg)->body, (*msg)->size);
    const size_t n = STRAIT_FRAME_HEADER + (*msg)->size;
    strait_msg_close(msg);
    return n;
}

static size_t hello_frame(unsigned char *out) {
    const strait_hello hello = {.run = {1, 2, 3, 4, 5}, .n_streams = 1, .name = "mallory"};
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_hello_pack(r.pool, &hello, &msg));
    return frame_of(&msg, 0x04030201, out);
}

static void test_old_version(void **state) {
    (void)state;
    struct hostile h;
    unsigned char bytes[256];
    hostile_open(&h);
    const size_t n = hello_frame(bytes);
    bytes[2] = 0;
    hostile_say(&h, bytes, n);
    CHECK(h.is_over && r.b.n_opened == 0 && r.b.n_refused == 1);
    CHECK(r.b.why_refused == STRAIT_EPROTO);
    CHECK(strstr(r.b.reason_refused, "protocol version 0, expected 1") != NULL);
    CHECK(was_told(&h, "protocol version 0, expected 1: install the same release on both"));
    hostile_close(&h);
}

static void test_first_frame_is_no_hello(void **state) {
    (void)state;
    struct hostile h;
    unsigned char bytes[256];
    hostile_open(&h);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 10);
    hostile_say(&h, bytes, frame_of(&msg, 0x04030201, bytes));
    CHECK(h.is_over && r.b.n_opened == 0);
    CHECK(strstr(r.b.reason_refused, "type 20, expected a HELLO") != NULL);
    CHECK(was_told(&h, "expected a HELLO"));
    hostile_close(&h);
}

/* Greets well, then sends one bad frame. */
static void misbehave(void (*spoil)(unsigned char *frame), uint32_t sequence, const char *reason) {
    struct hostile h;
    unsigned char bytes[512];
    hostile_open(&h);
    size_t n = hello_frame(bytes);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 10);
    msg->sequence = sequence;
    unsigned char *bad = bytes + n;
    n += frame_of(&msg, 0x04030201, bad);
    if (spoil != NULL) spoil(bad);
    hostile_say(&h, bytes, n);
    CHECK(h.is_over && r.b.n_opened == 1 && r.b.n_closed == 1 && r.b.n_got == 0);
    CHECK(r.b.why == STRAIT_EPROTO);
    if (strstr(r.b.reason, reason) == NULL) fail_msg("'%s' lacks '%s'", r.b.reason, reason);
    CHECK(was_told(&h, reason));
    hostile_close(&h);
}

static void spoil_body(unsigned char *frame) {
    frame[STRAIT_FRAME_HEADER + 3] ^= 1;
}

static void spoil_length(unsigned char *frame) {
    frame[23] = 0x7f;
}

static void test_bad_checksum(void **state) {
    (void)state;
    misbehave(spoil_body, 0, "damaged");
}

static void test_enormous_frame(void **state) {
    (void)state;
    misbehave(spoil_length, 0, "expected at most 67108864");
}

static void test_wrong_sequence(void **state) {
    (void)state;
    misbehave(NULL, 5, "frame number 5 of priority 0, expected 0");
}

int main(void) {
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_RIG(test_counts_are_exact),
        WITH_RIG(test_overhead_of_a_crossing),
        WITH_RIG(test_death_in_mid_frame),
        WITH_RIG(test_names_are_looked_up),
        WITH_RIG(test_not_tls),
        WITH_RIG(test_silent_stranger),
        WITH_RIG(test_old_version),
        WITH_RIG(test_first_frame_is_no_hello),
        WITH_RIG(test_bad_checksum),
        WITH_RIG(test_enormous_frame),
        WITH_RIG(test_wrong_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
