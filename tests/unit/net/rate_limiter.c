/* Limits on connections per source address: the table itself, and a listener that is flooded. */
#include "net/core/rate_limiter.h"

#include "contract/transport/transport_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define S INT64_C(1000000000)

enum {
    PER_ADDRESS = 48, // pending connections of one address, as in tcp.c
    IN_ALL = 64       // pending connections in all
};

static struct sockaddr_storage from(const char *text) {
    struct sockaddr_storage where = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&where;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&where;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        return where;
    }
    CHECK(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
    v6->sin6_family = AF_INET6;
    return where;
}

static strait_err acquire(struct strait_rate_limiter *limiter, const char *text, int64_t now,
                          struct strait_rate_limiter_entry **out) {
    const struct sockaddr_storage where = from(text);
    return strait_rate_limiter_acquire(limiter, (const struct sockaddr *)&where, now, out);
}

static void limits_open_connections_per_address(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 3, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    struct strait_rate_limiter_entry *b = NULL;
    for (int i = 0; i < 3; i++)
        CHECK_OK(acquire(&limiter, "10.0.0.1", 0, &a));
    CHECK_FAILS(acquire(&limiter, "10.0.0.1", 0, &b), STRAIT_EAGAIN, "too many connections");
    CHECK_OK(acquire(&limiter, "10.0.0.2", 0, &b));
    assert_ptr_not_equal(a, b);
    strait_rate_limiter_release(a);
    CHECK_OK(
        acquire(&limiter, "::ffff:10.0.0.1", 0, &b)); // the same address, seen by an IPv6 socket
    assert_ptr_equal(a, b);
    strait_rate_limiter_fini(&limiter);
}

static void limits_new_connections_per_second(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 1000, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    for (int i = 0; i < 20; i++) { // a burst: two seconds' worth
        CHECK_OK(acquire(&limiter, "10.0.0.1", 0, &a));
        strait_rate_limiter_release(a);
    }
    assert_int_equal(acquire(&limiter, "10.0.0.1", 0, &a), STRAIT_EAGAIN);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(acquire(&limiter, "10.0.0.1", S, &a));
        strait_rate_limiter_release(a);
    }
    assert_int_equal(acquire(&limiter, "10.0.0.1", S, &a), STRAIT_EAGAIN);
    strait_rate_limiter_sweep(&limiter, 2 * S);
    assert_int_equal(limiter.n_entries, 1); // its allowance is not full yet
    strait_rate_limiter_sweep(&limiter, 4 * S);
    assert_int_equal(limiter.n_entries, 0);
    strait_rate_limiter_fini(&limiter);
}

/* All addresses of an IPv6 /64 count as one, and the number of entries is bounded. */
static void counts_ipv6_networks_and_bounds_the_table(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 1, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    CHECK_OK(acquire(&limiter, "2001:db8:0:1::1", 0, &a));
    assert_int_equal(acquire(&limiter, "2001:db8:0:1:ffff::2", 0, &a), STRAIT_EAGAIN);
    CHECK_OK(acquire(&limiter, "2001:db8:0:2::1", 0, &a));
    for (int i = 2; i < STRAIT_RATE_LIMITER_MAX; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "10.%d.%d.1", i / 256, i % 256);
        CHECK_OK(acquire(&limiter, text, 0, &a));
    }
    CHECK_FAILS(acquire(&limiter, "192.0.2.1", 0, &a), STRAIT_EAGAIN, "more than 8192 addresses");
    strait_rate_limiter_fini(&limiter);
}

/* ---- a flood ---- */

/* Opens a connection from `source` to b that sends nothing. */
static int connect_silently(const char *source) {
    const struct sockaddr_storage here = from(source);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    where.sin_port = htons((uint16_t)strtol(strrchr(r.b.address, ':') + 1, NULL, 10));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&here, sizeof(struct sockaddr_in)) == 0);
    CHECK(connect(fd, (const struct sockaddr *)&where, sizeof where) == 0);
    return fd;
}

static int n_expected; // refusals

static int enough_refused(const struct rig *x) {
    return x->b.n_refused >= n_expected;
}

static void flood(const char *source, int n, int *fds) {
    for (int i = 0; i < n; i++) {
        fds[i] = connect_silently(source);
        if (i % 32 == 31) rig_rest(&r, 5); // the backlog is 256
    }
}

static void silent_connections_do_not_lock_out_peers(void **state) {
    (void)state;
    static int fds[4 * PER_ADDRESS + 2 * PER_ADDRESS];
    r.config.handshake_ms = 120000; // no connection closes by its deadline
    rig_start(&r);
    flood("127.0.0.2", 4 * PER_ADDRESS, fds);
    n_expected = 3 * PER_ADDRESS; // one address cannot exceed its limit
    CHECK(rig_drive(&r, enough_refused, 60000));
    rig_rest(&r, 50);
    assert_int_equal(r.b.n_refused, n_expected);
    assert_non_null(strstr(r.b.reason_refused, "from one address"));
    flood("127.0.0.3", 2 * PER_ADDRESS, fds + 4 * PER_ADDRESS);
    n_expected += PER_ADDRESS + 2 * PER_ADDRESS - IN_ALL; // two addresses share the total
    CHECK(rig_drive(&r, enough_refused, 60000));
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000)); // from 127.0.0.1
    for (int i = 0; i < 6 * PER_ADDRESS; i++)
        (void)close(fds[i]);
}

/* An incomplete link would count neither as pending nor as a peer, so its size is limited. */
static void refuses_links_with_too_many_streams(void **state) {
    (void)state;
    r.config.n_streams = 2;
    r.config.max_streams = 1;
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_b_refused, 10000));
    assert_int_equal(r.b.n_opened, 0);
    assert_int_equal(r.b.why_refused, STRAIT_EPROTO);
    CHECK(strstr(r.b.reason_refused, "wants 2 streams, this program accepts at most 1") != NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_open_connections_per_address),
        cmocka_unit_test(limits_new_connections_per_second),
        cmocka_unit_test(counts_ipv6_networks_and_bounds_the_table),
        cmocka_unit_test_setup_teardown(silent_connections_do_not_lock_out_peers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(refuses_links_with_too_many_streams, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
