/* The tls transport over real sockets, through a proxy that counts bytes and breaks links. */
#include "tcp_rig.h"

struct proxy {
    int listener;
    char target[STRAIT_ADDRESS_MAX];
    atomic_ullong n_forward, n_backward; // bytes forwarded
    unsigned long long close_after;      // of n_forward; 0: never
    pthread_t thread;
};

static int forward(int from, int to, atomic_ullong *count, unsigned long long limit) {
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

static void *run_proxy(void *arg) {
    struct proxy *proxy = arg;
    const int a = accept(proxy->listener, NULL, NULL);
    const int b = connect_to(proxy->target);
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    const unsigned long long limit = proxy->close_after > 0 ? proxy->close_after : ~0ULL;
    int is_good = 1;
    while (is_good && poll(fds, 2, 60000) > 0) {
        if (fds[0].revents != 0) is_good = forward(a, b, &proxy->n_forward, limit);
        if (is_good && fds[1].revents != 0) is_good = forward(b, a, &proxy->n_backward, ~0ULL);
    }
    (void)close(a);
    (void)close(b);
    return NULL;
}

/* Puts a proxy before b. */
static void start_proxy(struct proxy *proxy) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof where;
    proxy->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(proxy->listener, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(listen(proxy->listener, 1) == 0);
    CHECK(getsockname(proxy->listener, (struct sockaddr *)&where, &size) == 0);
    memcpy(proxy->target, r.b.address, sizeof proxy->target);
    (void)snprintf(r.b.address, sizeof r.b.address, "127.0.0.1:%d", ntohs(where.sin_port));
    CHECK(pthread_create(&proxy->thread, NULL, run_proxy, proxy) == 0);
}

static void stop_proxy(struct proxy *proxy) {
    pthread_join(proxy->thread, NULL);
    (void)close(proxy->listener);
}

static int b_received_fifty(const struct rig *x) {
    return x->b.n_got >= 50;
}

static void counts_bytes_exactly(void **state) {
    (void)state;
    struct proxy proxy = {0};
    r.config.n_streams = 1;
    r.config.ping_ms = 100000; // no PINGs between the two measurements
    rig_start(&r);
    start_proxy(&proxy);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000));
    for (uint32_t i = 0; i < 50; i++) {
        struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_ACTIVATION, i, i * 997);
        while (strait_link_send(r.a.link, &msg) == STRAIT_EAGAIN)
            rig_rest(&r, 1);
    }
    CHECK(rig_drive(&r, b_received_fifty, 60000));
    strait_link_stats a, b;
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    do { // until what is in flight has arrived
        rig_rest(&r, 20);
        r.a.t->ops->stats(r.a.link, &a);
        r.b.t->ops->stats(r.b.link, &b);
    } while (strait_clock_ns() < until &&
             (b.received_bytes != a.sent_bytes || a.received_bytes != b.sent_bytes));
    CHECK(a.sent_bytes == atomic_load(&proxy.n_forward) && b.received_bytes == a.sent_bytes);
    CHECK(b.sent_bytes == atomic_load(&proxy.n_backward) && a.received_bytes == b.sent_bytes);
    const uint64_t payload = 997ULL * 49 * 50 / 2;
    CHECK(a.sent_payload == payload);
    /* 32 bytes per frame, 22 per TLS record, and a handshake. */
    CHECK(a.sent_bytes > payload + 50 * 32 && a.sent_bytes < payload + 50 * 32 + 200 * 22 + 2000);
    CHECK(a.n_streams == 1 && a.tcp_rtt_s > 0 && a.congestion[0] != 0);
    strait_link_close(r.a.link, STRAIT_OK);
    CHECK(rig_drive(&r, rig_both_closed, 60000));
    stop_proxy(&proxy);
}

/* A microbatch of 2,048 tokens of 16 bytes. */
static void framing_and_tls_cost_under_one_percent(void **state) {
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
    CHECK(rig_drive(&r, b_received_fifty, 60000));
    rig_rest(&r, 50);
    r.a.t->ops->stats(r.a.link, &after);
    const double per_token = (double)(after.sent_bytes - before.sent_bytes) / (50 * 2048);
    CHECK(per_token > 16 && per_token < 16.06);
}

static void reports_a_connection_lost_in_mid_frame(void **state) {
    (void)state;
    struct proxy proxy = {.close_after = 200000};
    rig_start(&r);
    start_proxy(&proxy);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000));
    struct strait_msg *msg = rig_message(&r, STRAIT_PRIORITY_ACTIVATION, 1, 4000000);
    CHECK_OK(strait_link_send(r.a.link, &msg));
    CHECK(rig_drive(&r, rig_both_closed, 60000));
    CHECK(r.b.n_got == 0 && r.b.why == STRAIT_ECLOSED && r.a.why == STRAIT_ECLOSED);
    CHECK(strstr(r.b.reason, "mid-frame") != NULL || strstr(r.b.reason, "reset") != NULL);
    stop_proxy(&proxy);
}

static void resolves_host_names(void **state) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RIG(counts_bytes_exactly),
        WITH_RIG(framing_and_tls_cost_under_one_percent),
        WITH_RIG(reports_a_connection_lost_in_mid_frame),
        WITH_RIG(resolves_host_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
