/* How many connections an address may have, and how fast it may make them: the table, and a
 * listener that is flooded. */
#include "net/core/rate_limiter.h"

#include "contract/transport_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define S INT64_C(1000000000)

enum {
    MOST = 48, // of one address, as tcp.c has it
    ALL = 64   // of all
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

static strait_err come(struct strait_rate_limiter *limiter, const char *text, int64_t now,
                       struct strait_rate_limiter_entry **out) {
    const struct sockaddr_storage where = from(text);
    return strait_rate_limiter_acquire(limiter, (const struct sockaddr *)&where, now, out);
}

static void an_address_has_its_share(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 3, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    struct strait_rate_limiter_entry *b = NULL;
    for (int i = 0; i < 3; i++)
        CHECK_OK(come(&limiter, "10.0.0.1", 0, &a));
    CHECK_FAILS(come(&limiter, "10.0.0.1", 0, &b), STRAIT_EAGAIN, "too many connections");
    CHECK_OK(come(&limiter, "10.0.0.2", 0, &b));
    assert_ptr_not_equal(a, b);
    strait_rate_limiter_release(a);
    CHECK_OK(come(&limiter, "::ffff:10.0.0.1", 0, &b)); // the same, seen through another socket
    assert_ptr_equal(a, b);
    strait_rate_limiter_fini(&limiter);
}

static void it_may_not_hurry(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 1000, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    for (int i = 0; i < 20; i++) { // two seconds' worth at once
        CHECK_OK(come(&limiter, "10.0.0.1", 0, &a));
        strait_rate_limiter_release(a);
    }
    assert_int_equal(come(&limiter, "10.0.0.1", 0, &a), STRAIT_EAGAIN);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(come(&limiter, "10.0.0.1", S, &a));
        strait_rate_limiter_release(a);
    }
    assert_int_equal(come(&limiter, "10.0.0.1", S, &a), STRAIT_EAGAIN);
    strait_rate_limiter_sweep(&limiter, 2 * S);
    assert_int_equal(limiter.n_entries, 1); // it is not yet forgiven
    strait_rate_limiter_sweep(&limiter, 4 * S);
    assert_int_equal(limiter.n_entries, 0);
    strait_rate_limiter_fini(&limiter);
}

/* All hosts of an IPv6 network are one caller, and their number is bounded. */
static void networks_and_the_table_are_bounded(void **state) {
    (void)state;
    struct strait_rate_limiter limiter = {.max_open = 1, .max_per_s = 10};
    struct strait_rate_limiter_entry *a = NULL;
    CHECK_OK(come(&limiter, "2001:db8:0:1::1", 0, &a));
    assert_int_equal(come(&limiter, "2001:db8:0:1:ffff::2", 0, &a), STRAIT_EAGAIN);
    CHECK_OK(come(&limiter, "2001:db8:0:2::1", 0, &a));
    for (int i = 2; i < STRAIT_RATE_LIMITER_MAX; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "10.%d.%d.1", i / 256, i % 256);
        CHECK_OK(come(&limiter, text, 0, &a));
    }
    CHECK_FAILS(come(&limiter, "192.0.2.1", 0, &a), STRAIT_EAGAIN, "too many addresses");
    strait_rate_limiter_fini(&limiter);
}

/* ---- a flood ---- */

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

/* A connection from `source` to b that says nothing. */
static int knock(const char *source) {
    const struct sockaddr_storage here = from(source);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    where.sin_port = htons((uint16_t)strtol(strrchr(r.b.address, ':') + 1, NULL, 10));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (const struct sockaddr *)&here, sizeof(struct sockaddr_in)) == 0);
    CHECK(connect(fd, (const struct sockaddr *)&where, sizeof where) == 0);
    return fd;
}

static int n_expected; // refusals

static int are_refused(const struct rig *x) {
    return x->b.n_refused >= n_expected;
}

static void flood(const char *source, int n, int *fds) {
    for (int i = 0; i < n; i++) {
        fds[i] = knock(source);
        if (i % 32 == 31) rig_rest(&r, 5); // the kernel keeps 256
    }
}

static void silence_keeps_nobody_out(void **state) {
    (void)state;
    static int fds[4 * MOST + 2 * MOST];
    r.config.handshake_ms = 120000; // nobody goes because of that
    rig_start(&r);
    flood("127.0.0.2", 4 * MOST, fds);
    n_expected = 3 * MOST; // it has its share, and no more
    CHECK(rig_drive(&r, are_refused, 60000));
    rig_rest(&r, 50);
    assert_int_equal(r.b.n_refused, n_expected);
    assert_non_null(strstr(r.b.reason_refused, "from one address"));
    flood("127.0.0.3", 2 * MOST, fds + 4 * MOST);
    n_expected += MOST + 2 * MOST - ALL; // the two share what there is
    CHECK(rig_drive(&r, are_refused, 60000));
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_both_open, 60000)); // from 127.0.0.1
    for (int i = 0; i < 6 * MOST; i++)
        (void)close(fds[i]);
}

/* A link that is never whole would be neither a stranger nor a peer. */
static void no_more_streams_than_are_taken(void **state) {
    (void)state;
    r.config.n_streams = 2;
    r.config.max_streams = 1;
    rig_start(&r);
    (void)rig_dial(&r);
    CHECK(rig_drive(&r, rig_b_refused, 10000));
    assert_int_equal(r.b.n_opened, 0);
    assert_int_equal(r.b.why_refused, STRAIT_EPROTO);
    CHECK(strstr(r.b.reason_refused, "comes with 2 streams, but 1 is the most here") != NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_its_share),
        cmocka_unit_test(it_may_not_hurry),
        cmocka_unit_test(networks_and_the_table_are_bounded),
        cmocka_unit_test_setup_teardown(silence_keeps_nobody_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_streams_than_are_taken, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
