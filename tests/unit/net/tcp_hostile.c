/* The tls transport against clients that break its rules. */
#include "tcp_rig.h"

static int b_has_refused(const struct rig *x) {
    return x->b.n_refused > 0;
}

static int b_closed_or_refused(const struct rig *x) {
    return x->b.n_refused + x->b.n_closed > 0;
}

static void refuses_a_client_without_tls(void **state) {
    (void)state;
    rig_start(&r);
    const int fd = connect_to(r.b.address);
    static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    CHECK(write(fd, request, sizeof request - 1) == sizeof request - 1);
    CHECK(rig_drive(&r, b_has_refused, 60000));
    CHECK(r.b.why_refused == STRAIT_EPROTO &&
          strstr(r.b.reason_refused, "TLS handshake failed") != NULL);
    (void)close(fd);
}

static void refuses_a_silent_client(void **state) {
    (void)state;
    r.config.handshake_ms = 100;
    rig_start(&r);
    const int fd = connect_to(r.b.address);
    CHECK(rig_drive(&r, b_has_refused, 60000));
    CHECK(r.b.why_refused == STRAIT_ETIMEDOUT);
    CHECK(strstr(r.b.reason_refused, "no complete handshake within 100 ms") != NULL);
    (void)close(fd);
}

/* A peer that performs TLS correctly and then sends arbitrary bytes. */
struct hostile {
    int fd;
    struct strait_tls *tls;
    unsigned char received[4096];
    size_t n_received;
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

static void hostile_connect(struct hostile *h) {
    *h = (struct hostile){0};
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

static void hostile_open(struct hostile *h) {
    rig_start(&r);
    hostile_connect(h);
}

/* Sends raw bytes and reads until b closes. */
static void hostile_send(struct hostile *h, const void *bytes, size_t n) {
    if (n > 0) CHECK_OK(strait_tls_write(h->tls, bytes, n));
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    while (!h->is_over && strait_clock_ns() < until) {
        exchange(h);
        size_t got = 0;
        if (h->n_received < sizeof h->received &&
            strait_tls_read(h->tls, h->received + h->n_received, sizeof h->received - h->n_received,
                            &got) == STRAIT_OK)
            h->n_received += got;
    }
    CHECK(shutdown(h->fd, SHUT_RDWR) == 0 || errno == ENOTCONN);
    CHECK(rig_drive(&r, b_closed_or_refused, 60000)); // it notices that we closed
    rig_rest(&r, 20);
}

static void hostile_close(struct hostile *h) {
    (void)close(h->fd);
    strait_tls_close(&h->tls);
    rig_rest(&r, 20);
}

static int was_sent(const struct hostile *h, const char *reason) {
    const size_t n = strlen(reason);
    for (size_t i = 0; i + n <= h->n_received; i++)
        if (memcmp(h->received + i, reason, n) == 0) return 1;
    return 0;
}

static size_t frame_of(struct strait_msg **msg, uint32_t run, unsigned char *out) {
    strait_frame_write(*msg, run, out);
    memcpy(out + STRAIT_FRAME_HEADER, (*msg)->body, (*msg)->size);
    const size_t n = STRAIT_FRAME_HEADER + (*msg)->size;
    strait_msg_close(msg);
    return n;
}

static size_t stream_hello_frame(int stream, int n_streams, unsigned char *out) {
    const strait_hello hello = {.run = {1, 2, 3, 4, 5},
                                .stream = (uint8_t)stream,
                                .n_streams = (uint8_t)n_streams,
                                .name = "mallory"};
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_hello_pack(r.pool, &hello, &msg));
    return frame_of(&msg, 0x04030201, out);
}

static size_t hello_frame(unsigned char *out) {
    return stream_hello_frame(0, 1, out);
}

static void refuses_another_version_and_names_both(void **state) {
    (void)state;
    struct hostile h;
    unsigned char bytes[256];
    hostile_open(&h);
    const size_t n = hello_frame(bytes);
    bytes[2] = 0;
    hostile_send(&h, bytes, n);
    CHECK(h.is_over && r.b.n_opened == 0 && r.b.n_refused == 1);
    CHECK(r.b.why_refused == STRAIT_EPROTO);
    CHECK(strstr(r.b.reason_refused, "the peer uses protocol version 0, this program version 13: "
                                     "install the same release") != NULL);
    CHECK(strncmp(r.b.reason_refused, "127.0.0.1:", 10) == 0); // names its address and key
    CHECK(strstr(r.b.reason_refused, " (key ") != NULL);
    CHECK(was_sent(&h, "the peer uses protocol version 0, this program version 13"));
    hostile_close(&h);
}

/* The other side of a mismatch: a server of version 14 answers our HELLO with its BYE. */
static void names_both_versions_when_refused(void **state) {
    (void)state;
    struct hostile h = {0};
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof where;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    r.config.n_streams = 1;
    rig_start(&r);
    CHECK(bind(listener, (struct sockaddr *)&where, size) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&where, &size) == 0);
    (void)snprintf(r.b.address, sizeof r.b.address, "127.0.0.1:%d", ntohs(where.sin_port));
    (void)rig_dial(&r);
    rig_rest(&r, 20);
    h.fd = accept(listener, NULL, NULL);
    CHECK_OK(strait_tls_open(r.b.identity, 1, &h.tls));
    while (strait_tls_handshake(h.tls) == STRAIT_EAGAIN) {
        exchange(&h);
        rig_rest(&r, 1);
    }
    struct strait_msg *msg = NULL;
    const strait_bye bye = {.why = STRAIT_EPROTO, .reason = "written by version 14"};
    CHECK_OK(strait_bye_pack(r.pool, &bye, &msg));
    unsigned char bytes[256];
    const size_t n = frame_of(&msg, 0, bytes);
    bytes[2] = 14;
    const uint32_t sum = (uint32_t)XXH3_64bits_withSeed(
        bytes + STRAIT_FRAME_HEADER, n - STRAIT_FRAME_HEADER, XXH3_64bits(bytes, 28));
    memcpy(bytes + 28, &sum, sizeof sum);
    CHECK_OK(strait_tls_write(h.tls, bytes, n));
    while (r.a.n_closed == 0) {
        exchange(&h);
        rig_rest(&r, 1);
    }
    CHECK(r.a.why == STRAIT_EPROTO && r.a.n_opened == 0);
    CHECK(strstr(r.a.reason, "the peer uses protocol version 14, this program version 13: install "
                             "the same release") != NULL);
    hostile_close(&h);
    (void)close(listener);
}

static void refuses_a_first_frame_other_than_hello(void **state) {
    (void)state;
    struct hostile h;
    unsigned char bytes[256];
    hostile_open(&h);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 10);
    hostile_send(&h, bytes, frame_of(&msg, 0x04030201, bytes));
    CHECK(h.is_over && r.b.n_opened == 0);
    CHECK(strstr(r.b.reason_refused, "type 20, expected a HELLO") != NULL);
    CHECK(was_sent(&h, "expected a HELLO"));
    hostile_close(&h);
}

/* Sends a valid HELLO, then one bad frame. */
static void expect_close_after(void (*corrupt)(unsigned char *frame), uint32_t sequence,
                               const char *reason) {
    struct hostile h;
    unsigned char bytes[512];
    hostile_open(&h);
    size_t n = hello_frame(bytes);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 10);
    msg->sequence = sequence;
    unsigned char *bad = bytes + n;
    n += frame_of(&msg, 0x04030201, bad);
    if (corrupt != NULL) corrupt(bad);
    hostile_send(&h, bytes, n);
    CHECK(h.is_over && r.b.n_opened == 1 && r.b.n_closed == 1 && r.b.n_got == 0);
    CHECK(r.b.why == STRAIT_EPROTO);
    if (strstr(r.b.reason, reason) == NULL) fail_msg("'%s' lacks '%s'", r.b.reason, reason);
    CHECK(was_sent(&h, reason));
    hostile_close(&h);
}

static void corrupt_body(unsigned char *frame) {
    frame[STRAIT_FRAME_HEADER + 3] ^= 1;
}

static void corrupt_length(unsigned char *frame) {
    frame[23] = 0x7f;
}

static void closes_after_a_bad_checksum(void **state) {
    (void)state;
    expect_close_after(corrupt_body, 0, "damaged");
}

static void closes_after_an_enormous_frame(void **state) {
    (void)state;
    expect_close_after(corrupt_length, 0, "expected at most 67108864");
}

static void closes_after_a_wrong_sequence_number(void **state) {
    (void)state;
    expect_close_after(NULL, 5, "sequence number 5 of priority 0, expected 0");
}

/* Writes the frame of message `sequence` into the stream. */
static void send_numbered(struct hostile *h, uint32_t sequence) {
    unsigned char bytes[512];
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, sequence, 10);
    msg->sequence = sequence;
    CHECK_OK(strait_tls_write(h->tls, bytes, frame_of(&msg, 0x04030201, bytes)));
    exchange(h);
}

/* One stream may be faster than another by more messages than wait in order; it is then not read
 * until the other has caught up. */
static void delivers_in_order_after_one_stream_was_far_ahead(void **state) {
    (void)state;
    enum {
        N = 2000
    };
    struct hostile fast, slow;
    unsigned char bytes[256];
    hostile_open(&fast);
    hostile_connect(&slow);
    CHECK_OK(strait_tls_write(fast.tls, bytes, stream_hello_frame(0, 2, bytes)));
    CHECK_OK(strait_tls_write(slow.tls, bytes, stream_hello_frame(1, 2, bytes)));
    for (uint32_t i = 0; i < N; i++)
        if (i % 500 != 0) send_numbered(&fast, i);
    CHECK(r.b.n_got == 0);
    for (uint32_t i = 0; i < N; i += 500)
        send_numbered(&slow, i);
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    while (r.b.n_got < N && r.b.n_closed == 0 && strait_clock_ns() < until) {
        exchange(&fast);
        exchange(&slow);
    }
    CHECK(r.b.n_got == N && r.b.n_closed == 0);
    for (uint32_t i = 0; i < N; i++)
        CHECK(r.b.steps[i] == i);
    hostile_close(&slow);
    hostile_close(&fast);
}

/* A peer that is admitted begins links of two streams and completes none: what it sends on the
 * first stream of each waits in memory for the second. */
static void keeps_one_incomplete_link_of_a_peer(void **state) {
    (void)state;
    enum {
        N = 6
    };
    struct hostile h[N];
    unsigned char bytes[256];
    rig_start(&r);
    for (uint64_t i = 0; i < N; i++) {
        const strait_hello hello = {.run = {1, 2, 3, 4, 5}, .link = i + 1, .n_streams = 2};
        struct strait_msg *msg = NULL;
        hostile_connect(&h[i]);
        CHECK_OK(strait_hello_pack(r.pool, &hello, &msg));
        CHECK_OK(strait_tls_write(h[i].tls, bytes, frame_of(&msg, 0x04030201, bytes)));
        exchange(&h[i]);
        rig_rest(&r, 20);
        assert_int_equal(r.b.n_closed, i);
    }
    CHECK(r.b.n_opened == 0 && r.b.why == STRAIT_ECLOSED);
    CHECK(strstr(r.b.reason, "replaced by a newer connection of the same peer") != NULL);
    for (int i = 0; i < N; i++)
        hostile_close(&h[i]);
}

static void set_limit(struct rig_node *node) {
    node->link->message_max = 100;
}

/* A listener does not allocate for what a peer may only send later. */
static void closes_after_a_frame_above_the_limit_of_the_link(void **state) {
    (void)state;
    struct hostile h;
    unsigned char bytes[512];
    r.b.on_open = set_limit;
    hostile_open(&h);
    size_t n = hello_frame(bytes);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 101);
    n += frame_of(&msg, 0x04030201, bytes + n);
    hostile_send(&h, bytes, n);
    CHECK(r.b.n_opened == 1 && r.b.n_got == 0 && r.b.why == STRAIT_EPROTO);
    CHECK(strstr(r.b.reason, "frame of 101 bytes, expected at most 100") != NULL);
    hostile_close(&h);
}

static void refuses_a_large_first_frame(void **state) {
    (void)state;
    struct hostile h;
    static unsigned char bytes[4096];
    hostile_open(&h);
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_CONTROL, 0, 2000);
    hostile_send(&h, bytes, frame_of(&msg, 0x04030201, bytes));
    CHECK(h.is_over && r.b.n_opened == 0);
    CHECK(strstr(r.b.reason_refused, "frame of 2000 bytes, expected at most 1024") != NULL);
    hostile_close(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(refuses_a_client_without_tls),
        WITH_RIG(refuses_a_silent_client),
        WITH_RIG(refuses_another_version_and_names_both),
        WITH_RIG(names_both_versions_when_refused),
        WITH_RIG(refuses_a_first_frame_other_than_hello),
        WITH_RIG(closes_after_a_bad_checksum),
        WITH_RIG(closes_after_an_enormous_frame),
        WITH_RIG(closes_after_a_wrong_sequence_number),
        WITH_RIG(delivers_in_order_after_one_stream_was_far_ahead),
        WITH_RIG(keeps_one_incomplete_link_of_a_peer),
        WITH_RIG(closes_after_a_frame_above_the_limit_of_the_link),
        WITH_RIG(refuses_a_large_first_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
