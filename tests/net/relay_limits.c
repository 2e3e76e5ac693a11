/* The limits of a relay, each of them reached. */
#include "base/clock.h"
#include "relay_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void pairs_opposite_roles_with_the_same_token(void **state) {
    (void)state;
    struct relay_rig r;
    strait_relay_token other;
    char got[8] = "";
    relay_rig_open(&r, &(strait_relay_config){.waiting_timeout_ms = 4000}, "127.0.0.1:0");
    other = r.token;
    other.bytes[31] ^= 1;
    const int wrong = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &other);
    const int twin = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    relay_rig_settle(r.where); // of two that wait, the later one is paired
    const int dials = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    relay_rig_settle(r.where);
    const int listens = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(relay_rig_reply(listens));
    CHECK_OK(relay_rig_reply(dials));
    CHECK(send(dials, "ping", 4, 0) == 4 && recv(listens, got, 4, MSG_WAITALL) == 4);
    assert_string_equal(got, "ping");
    CHECK(shutdown(listens, SHUT_WR) == 0); // one direction ends, the other continues
    CHECK(recv(dials, got, 1, 0) == 0);
    CHECK(send(dials, "pong", 4, 0) == 4 && recv(listens, got, 4, MSG_WAITALL) == 4);
    assert_string_equal(got, "pong");
    CHECK_FAILS(relay_rig_reply(twin), STRAIT_EAGAIN, "no peer came");
    CHECK_FAILS(relay_rig_reply(wrong), STRAIT_EAGAIN, "no peer came");
    (void)close(wrong);
    (void)close(twin);
    (void)close(dials);
    (void)close(listens);
    relay_rig_stop(&r, NULL);
}

static void closes_bad_requests_and_silent_connections(void **state) {
    (void)state;
    struct relay_rig r;
    relay_rig_open(&r, &(strait_relay_config){.request_timeout_ms = 3000, .idle_timeout_ms = 2000},
                   "127.0.0.1:0");
    relay_rig_settle(r.where);
    const int silent = relay_rig_connect(r.where, 1);
    const int eager = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK(send(eager, "too early bytes", 15, 0) == 15);
    CHECK_FAILS(relay_rig_reply(eager), STRAIT_EINVAL, "closed without a reply");
    CHECK_FAILS(relay_rig_reply(silent), STRAIT_EAGAIN,
                "no peer came"); // a lost request may come again
    const int a = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    const int b = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    CHECK_OK(relay_rig_reply(a));
    CHECK_OK(relay_rig_reply(b));
    CHECK_FAILS(relay_rig_reply(a), STRAIT_EINVAL,
                "closed without a reply"); // an idle pair is closed
    (void)close(silent);
    (void)close(eager);
    (void)close(a);
    (void)close(b);
    relay_rig_stop(&r, NULL);
}

static atomic_int n_versions_refused;
static char version_reason[256];

static void on_version_refused(void *unused) {
    (void)unused;
    (void)snprintf(version_reason, sizeof version_reason, "%.255s", strait_err_detail());
    n_versions_refused++;
}

/* A machine of another version is refused on both sides with a reason that names both versions. */
static void reports_each_refused_version_once(void **state) {
    (void)state;
    struct relay_rig r;
    unsigned char request[STRAIT_RELAY_REQUEST];
    relay_rig_open(&r, &(strait_relay_config){.peer_refused = on_version_refused}, "127.0.0.1:0");
    strait_relay_request_pack(STRAIT_RELAY_DIALS, &r.token, request);
    request[4] = 7;
    for (int i = 0; i < 2; i++) {
        const int fd = relay_rig_connect(r.where, 1);
        CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
        CHECK_FAILS(relay_rig_reply(fd), STRAIT_EPROTO, "rejected our request");
        (void)close(fd);
    }
    relay_rig_stop(&r, NULL);
    assert_int_equal(n_versions_refused, 1);
    CHECK(strstr(version_reason, "relay protocol version 7, this relay version 1: install") !=
          NULL);
}

static void limits_connections_per_address(void **state) {
    (void)state;
    struct relay_rig r;
    int fds[12];
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 8}, "127.0.0.1:0");
    for (int i = 0; i < 12; i++)
        fds[i] = relay_rig_connect(r.where, 2);
    for (int i = 8; i < 12; i++)
        CHECK_FAILS(relay_rig_reply(fds[i]), STRAIT_ECLOSED, "too many connections");
    const int other = relay_rig_request(r.where, 3, STRAIT_RELAY_DIALS, &r.token);
    const int mate = relay_rig_request(r.where, 4, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(relay_rig_reply(other));
    CHECK_OK(relay_rig_reply(mate));
    for (int i = 0; i < 12; i++)
        (void)close(fds[i]);
    (void)close(other);
    (void)close(mate);
    relay_rig_stop(&r, NULL);
}

/* The peer of the oldest is least likely to come. */
static void refuses_the_oldest_of_too_many_that_wait(void **state) {
    (void)state;
    struct relay_rig r;
    int fds[4];
    strait_relay_token tokens[4];
    relay_rig_open(&r, &(strait_relay_config){.max_waiting = 3, .waiting_timeout_ms = 600000},
                   "127.0.0.1:0");
    for (int i = 0; i < 4; i++) {
        tokens[i] = r.token;
        tokens[i].bytes[0] ^= (unsigned char)i;
        fds[i] = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &tokens[i]);
        relay_rig_settle(r.where); // the relay has read the request when this was answered
    }
    CHECK_FAILS(relay_rig_reply(fds[0]), STRAIT_ECLOSED, "too many connections");
    for (int i = 1; i < 4; i++) { // the others still wait
        const int mate = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &tokens[i]);
        CHECK_OK(relay_rig_reply(mate));
        CHECK_OK(relay_rig_reply(fds[i]));
        (void)close(mate);
        (void)close(fds[i]);
    }
    (void)close(fds[0]);
    relay_rig_stop(&r, NULL);
}

/* Crowds of connections from a few addresses, without a request and waiting, do not displace a
 * machine that is alone at its address, although it is the oldest. */
static void a_crowd_displaces_itself(void **state) {
    (void)state;
    enum {
        CROWD = 12
    };
    struct relay_rig r;
    int silent[CROWD], waiting[CROWD];
    unsigned char request[STRAIT_RELAY_REQUEST];
    relay_rig_open(
        &r, &(strait_relay_config){.max_waiting = 6, .max_new = 6, .request_timeout_ms = 600000},
        "127.0.0.1:0");
    const int host = relay_rig_request(r.where, 9, STRAIT_RELAY_LISTENS, &r.token);
    const int late = relay_rig_connect(r.where, 8); // its request is still under way
    for (int i = 0; i < CROWD; i++) {
        strait_relay_token token = {{(unsigned char)i}};
        waiting[i] = relay_rig_request(r.where, 2 + i % 3, STRAIT_RELAY_LISTENS, &token);
        silent[i] = relay_rig_connect(r.where, 2 + i % 3);
        relay_rig_settle(r.where);
    }
    strait_relay_request_pack(STRAIT_RELAY_DIALS, &r.token, request);
    CHECK(send(late, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    CHECK_OK(relay_rig_reply(late));
    CHECK_OK(relay_rig_reply(host));
    for (int i = 0; i < CROWD; i++) {
        (void)close(waiting[i]);
        (void)close(silent[i]);
    }
    (void)close(late);
    (void)close(host);
    relay_rig_stop(&r, NULL);
}

/* Pairs are never closed in favour of others. */
static void refuses_the_newest_of_too_many_in_all(void **state) {
    (void)state;
    enum {
        PAIRS = 4
    };
    struct relay_rig r;
    strait_relay_stats stats;
    int fds[2 * PAIRS];
    relay_rig_open(&r, &(strait_relay_config){.max_connections = 2 * PAIRS}, "127.0.0.1:0");
    for (int i = 0; i < 2 * PAIRS; i++) {
        fds[i] = relay_rig_request(r.where, 1, i % 2 ? STRAIT_RELAY_DIALS : STRAIT_RELAY_LISTENS,
                                   &r.token);
        if (i % 2 == 0) continue;
        CHECK_OK(relay_rig_reply(fds[i]));
        CHECK_OK(relay_rig_reply(fds[i - 1]));
    }
    const int other = relay_rig_connect(r.where, 2);
    CHECK_FAILS(relay_rig_reply(other), STRAIT_ECLOSED, "too many connections");
    for (int i = 0; i < 2 * PAIRS; i++)
        (void)close(fds[i]);
    (void)close(other);
    relay_rig_stop(&r, &stats);
    assert_int_equal(stats.n_paired, PAIRS);
    assert_int_equal(stats.n_refused, 1);
}

/* A connection that has ended no longer counts. */
static void forgets_connections_of_an_address_that_have_ended(void **state) {
    (void)state;
    struct relay_rig r;
    relay_rig_open(&r,
                   &(strait_relay_config){
                       .max_per_address = 2, .max_new_per_s = 1000000, .waiting_timeout_ms = 2000},
                   "127.0.0.1:0");
    int n_pairs = 0;
    for (int i = 0; i < 1000 && n_pairs < 5; i++) { // the relay may not have seen the ends yet
        const int a = relay_rig_request(r.where, 2, STRAIT_RELAY_LISTENS, &r.token);
        const int b = relay_rig_request(r.where, 3, STRAIT_RELAY_DIALS, &r.token);
        const int c = relay_rig_connect(r.where, 2);
        n_pairs += relay_rig_reply(a) == STRAIT_OK && relay_rig_reply(b) == STRAIT_OK;
        (void)close(a);
        (void)close(b);
        (void)close(c);
        relay_rig_rest(5);
    }
    assert_int_equal(n_pairs, 5);
    relay_rig_stop(&r, NULL);
}

/* Whether a pair of which one sends for longer than the idle timeout, and the other nothing, stays
 * open. */
static int one_way_stays_open(struct relay_rig *r, double idle_s) {
    char byte = 0;
    const int a = relay_rig_request(r->where, 1, STRAIT_RELAY_LISTENS, &r->token);
    const int b = relay_rig_request(r->where, 1, STRAIT_RELAY_DIALS, &r->token);
    CHECK_OK(relay_rig_reply(a));
    CHECK_OK(relay_rig_reply(b));
    int is_open = 1;
    for (const double began = strait_clock_seconds();
         is_open && strait_clock_seconds() - began < 1.5 * idle_s;) {
        is_open = send(a, &byte, 1, MSG_NOSIGNAL) == 1 && recv(b, &byte, 1, 0) == 1;
        relay_rig_rest(10);
    }
    (void)close(a);
    (void)close(b);
    return is_open;
}

static void one_direction_keeps_a_pair_open(void **state) {
    (void)state;
    const int idle_ms = 400;
    struct relay_rig r;
    int is_open = 0;
    relay_rig_open(&r, &(strait_relay_config){.idle_timeout_ms = idle_ms}, "127.0.0.1:0");
    for (int i = 0; i < 20 && !is_open; i++) // a busy machine may send too late
        is_open = one_way_stays_open(&r, 1e-3 * idle_ms);
    CHECK(is_open);
    relay_rig_stop(&r, NULL);
}

static void enforces_the_rate_limit(void **state) {
    (void)state;
    enum {
        RATE = 1000000,
        BYTES = 700000
    };
    struct relay_rig r;
    static unsigned char bytes[BYTES];
    relay_rig_open(&r, &(strait_relay_config){.bytes_per_s = RATE}, "127.0.0.1:0");
    const int a = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    const int b = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(relay_rig_reply(a));
    CHECK_OK(relay_rig_reply(b));
    const int64_t start = strait_clock_ns();
    size_t n_sent = 0, n_got = 0;
    while (n_got < BYTES) {
        const ssize_t sent = send(a, bytes + n_sent, BYTES - n_sent, MSG_DONTWAIT);
        if (sent > 0) n_sent += (size_t)sent;
        const ssize_t got = recv(b, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) n_got += (size_t)got;
        if (sent <= 0 && got <= 0) relay_rig_rest(1);
    }
    const double seconds = (double)(strait_clock_ns() - start) * 1e-9;
    print_message("%d bytes at %d per second took %.2f s\n", BYTES, RATE, seconds);
    CHECK(seconds > 0.5 && seconds < 60);
    (void)close(a);
    (void)close(b);
    relay_rig_stop(&r, NULL);
}

/* ---- many connections ---- */

static int64_t resident_kb(pid_t pid) {
    char path[64], line[256];
    int64_t kb = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0) kb = strtoll(line + 6, NULL, 10);
    (void)fclose(file);
    return kb;
}

static pid_t start_relay(int out, const strait_relay_config *config) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct strait_relay *relay = NULL;
    char where[STRAIT_ADDRESS_MAX] = "";
    if (strait_relay_open(config, &relay) != STRAIT_OK ||
        strait_relay_listen(relay, "127.0.0.1:0", where, sizeof where) != STRAIT_OK)
        _exit(1);
    if (write(out, where, sizeof where) != sizeof where) _exit(1);
    strait_relay_run(relay);
    _exit(0);
}

/* Sanitizers keep freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum {
    GROWTH_KB = 65536
};
#else
enum {
    GROWTH_KB = 4096
};
#endif

/* Ten thousand connections from forty addresses that send nothing, and a pair that works. */
static void survives_ten_thousand_silent_connections(void **state) {
    (void)state;
    enum {
        CROWD = 10000
    };
    static int fds[CROWD];
    struct rlimit files;
    char where[STRAIT_ADDRESS_MAX], address[STRAIT_ADDRESS_MAX];
    strait_relay_token token = {{5}};
    int ends[2], n_connected = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < CROWD + 100) skip();
    CHECK(pipe(ends) == 0);
    const strait_relay_config config = {.max_per_address = 1000, .max_new_per_s = 100000};
    const pid_t relay = start_relay(ends[1], &config);
    CHECK(read(ends[0], where, sizeof where) == sizeof where);
    CHECK_OK(strait_relay_address_print(where, &token, address, sizeof address));
    const int64_t before = resident_kb(relay);
    struct relay_node a = {.peer = 0}, b = {.peer = 0};
    relay_rig_pair(&a, &b, address, address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    for (int i = 0; i < CROWD; i++) {
        fds[i] = relay_rig_connect(where, 10 + i % 40);
        n_connected += fds[i] >= 0;
        if (i % 500 == 0) relay_rig_exchange(&a, &b, 4, 1000);
    }
    const int64_t after = resident_kb(relay);
    print_message("%d silent connections: the relay grew by %lld KiB\n", n_connected,
                  (long long)(after - before));
    CHECK(n_connected > CROWD / 2);
    CHECK(after - before < GROWTH_KB);
    relay_node_close(&a); // new pairs are still served
    relay_node_close(&b);
    relay_rig_pair(&a, &b, address, address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    relay_rig_exchange(&a, &b, 20, 1000);
    relay_node_close(&a);
    relay_node_close(&b);
    for (int i = 0; i < CROWD; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
    CHECK(kill(relay, SIGKILL) == 0 && waitpid(relay, NULL, 0) == relay);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            survives_ten_thousand_silent_connections), // forks, so it runs before there are threads
        cmocka_unit_test(pairs_opposite_roles_with_the_same_token),
        cmocka_unit_test(closes_bad_requests_and_silent_connections),
        cmocka_unit_test(reports_each_refused_version_once),
        cmocka_unit_test(limits_connections_per_address),
        cmocka_unit_test(refuses_the_oldest_of_too_many_that_wait),
        cmocka_unit_test(a_crowd_displaces_itself),
        cmocka_unit_test(refuses_the_newest_of_too_many_in_all),
        cmocka_unit_test(forgets_connections_of_an_address_that_have_ended),
        cmocka_unit_test(one_direction_keeps_a_pair_open),
        cmocka_unit_test(enforces_the_rate_limit),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
