/* What strangers cannot do to a relay: its bounds, each of them reached. */
#include "base/clock.h"
#include "relay_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int greet(const char *where, int from, strait_relay_role role,
                 const strait_relay_token *token) {
    unsigned char greeting[STRAIT_RELAY_REQUEST];
    const int fd = relay_rig_connect(where, from);
    CHECK(fd >= 0);
    strait_relay_request_pack(role, token, greeting);
    CHECK(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting);
    return fd;
}

/* The relay's answer; an error when it hung up without one. */
static strait_err hear(int fd) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    const struct timeval limit = {.tv_sec = 60};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    ssize_t n = 0;
    do
        n = recv(fd, reply, sizeof reply, MSG_WAITALL);
    while (n < 0 && errno == EINTR); // the system may do work of the relay's thread in this one
    if (n != sizeof reply) return STRAIT_FAIL(STRAIT_EINVAL, "hung up");
    return strait_relay_reply_unpack(reply);
}

/* Nonsense, to which the relay answers; by then it has heard those who came before. */
static void talk_nonsense(const char *where) {
    static const unsigned char request[STRAIT_RELAY_REQUEST] = "GET / HTTP/1.1\r\n\r\n";
    const int fd = relay_rig_connect(where, 1);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    CHECK_FAILS(hear(fd), STRAIT_EPROTO, "does not understand");
    (void)close(fd);
}

static void test_pairs_are_opposites_with_one_token(void **state) {
    (void)state;
    struct relay_rig r;
    strait_relay_token other;
    char got[8] = "";
    relay_rig_open(&r, &(strait_relay_config){.waiting_timeout_ms = 4000}, "127.0.0.1:0");
    other = r.token;
    other.bytes[31] ^= 1;
    const int wrong = greet(r.where, 1, STRAIT_RELAY_LISTENS, &other);
    const int twin = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    talk_nonsense(r.where); // the later of two is the one that meets
    const int dials = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    talk_nonsense(r.where);
    const int listens = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(hear(listens));
    CHECK_OK(hear(dials));
    CHECK(send(dials, "ping", 4, 0) == 4 && recv(listens, got, 4, MSG_WAITALL) == 4);
    assert_string_equal(got, "ping");
    CHECK(shutdown(listens, SHUT_WR) == 0); // one way ends, the other goes on
    CHECK(recv(dials, got, 1, 0) == 0);
    CHECK(send(dials, "pong", 4, 0) == 4 && recv(listens, got, 4, MSG_WAITALL) == 4);
    assert_string_equal(got, "pong");
    CHECK_FAILS(hear(twin), STRAIT_EAGAIN, "nobody else came");
    CHECK_FAILS(hear(wrong), STRAIT_EAGAIN, "nobody else came");
    (void)close(wrong);
    (void)close(twin);
    (void)close(dials);
    (void)close(listens);
    relay_rig_stop(&r, NULL);
}

static void test_nonsense_and_silence_end(void **state) {
    (void)state;
    struct relay_rig r;
    relay_rig_open(&r, &(strait_relay_config){.request_timeout_ms = 3000, .idle_timeout_ms = 2000},
                   "127.0.0.1:0");
    talk_nonsense(r.where);
    const int silent = relay_rig_connect(r.where, 1);
    const int eager = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK(send(eager, "before its turn", 15, 0) == 15);
    CHECK_FAILS(hear(eager), STRAIT_EINVAL, "hung up");
    CHECK_FAILS(hear(silent), STRAIT_EAGAIN, "nobody else came"); // a lost greeting may come again
    const int a = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    const int b = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    CHECK_OK(hear(a));
    CHECK_OK(hear(b));
    CHECK_FAILS(hear(a), STRAIT_EINVAL, "hung up"); // a silent pair is parted
    (void)close(silent);
    (void)close(eager);
    (void)close(a);
    (void)close(b);
    relay_rig_stop(&r, NULL);
}

static void test_one_address_has_its_share(void **state) {
    (void)state;
    struct relay_rig r;
    int fds[12];
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 8}, "127.0.0.1:0");
    for (int i = 0; i < 12; i++)
        fds[i] = relay_rig_connect(r.where, 2);
    for (int i = 8; i < 12; i++)
        CHECK_FAILS(hear(fds[i]), STRAIT_ECLOSED, "too many from here");
    const int other = greet(r.where, 3, STRAIT_RELAY_DIALS, &r.token);
    const int mate = greet(r.where, 4, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(hear(other));
    CHECK_OK(hear(mate));
    for (int i = 0; i < 12; i++)
        (void)close(fds[i]);
    (void)close(other);
    (void)close(mate);
    relay_rig_stop(&r, NULL);
}

static void test_a_limited_pair_is_slowed(void **state) {
    (void)state;
    enum {
        RATE = 1000000,
        BYTES = 700000
    };
    struct relay_rig r;
    static unsigned char bytes[BYTES];
    relay_rig_open(&r, &(strait_relay_config){.bytes_per_s = RATE}, "127.0.0.1:0");
    const int a = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    const int b = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK_OK(hear(a));
    CHECK_OK(hear(b));
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
    print_message("%d bytes at %d a second took %.2f s\n", BYTES, RATE, seconds);
    CHECK(seconds > 0.5 && seconds < 60);
    (void)close(a);
    (void)close(b);
    relay_rig_stop(&r, NULL);
}

/* ---- crowds ---- */

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

/* Sanitizers keep what was freed for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum {
    GROWTH_KB = 65536
};
#else
enum {
    GROWTH_KB = 4096
};
#endif

/* Ten thousand that say nothing, from forty addresses, and two that have something to say. */
static void test_a_silent_crowd(void **state) {
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
    const int64_t prev = resident_kb(relay);
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
                  (long long)(after - prev));
    CHECK(n_connected > CROWD / 2);
    CHECK(after - prev < GROWTH_KB);
    relay_node_close(&a); // and who comes now is still served
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
        cmocka_unit_test(test_a_silent_crowd), // it forks: before there are threads
        cmocka_unit_test(test_pairs_are_opposites_with_one_token),
        cmocka_unit_test(test_nonsense_and_silence_end),
        cmocka_unit_test(test_one_address_has_its_share),
        cmocka_unit_test(test_a_limited_pair_is_slowed),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
