/* Nodes that meet at a relay, what the relay cannot do to them, and what strangers cannot do to it.
 */
#include "base/clock.h"
#include "relay_rig.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void rest_ms(int ms) {
    (void)nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* ---- bytes ---- */

static void test_golden_bytes(void **state) {
    (void)state;
    strait_relay_token token, back;
    strait_relay_role role = STRAIT_RELAY_DIALS;
    unsigned char greeting[STRAIT_RELAY_GREETING], reply[STRAIT_RELAY_REPLY];
    for (int i = 0; i < STRAIT_RELAY_TOKEN; i++)
        token.bytes[i] = (unsigned char)(i + 1);
    strait_relay_greeting_pack(STRAIT_RELAY_LISTENS, &token, greeting);
    assert_memory_equal(greeting, "StRl\1\1\0\0\1\2\3", 11);
    CHECK_OK(strait_relay_greeting_unpack(greeting, &role, &back));
    CHECK(role == STRAIT_RELAY_LISTENS && strait_relay_token_equal(&token, &back));
    for (int i = 0; i < 8; i++) { // no bit of its first bytes is free
        for (int bit = 0; bit < 8; bit++) {
            greeting[i] ^= (unsigned char)(1 << bit);
            const strait_err err = strait_relay_greeting_unpack(greeting, &role, &back);
            assert_int_equal(err, i == 5 && bit == 0 ? STRAIT_OK : STRAIT_EPROTO);
            greeting[i] ^= (unsigned char)(1 << bit);
        }
    }
    strait_relay_reply_pack(STRAIT_RELAY_MET, reply);
    assert_memory_equal(reply, "StRl\1\0\0\0", 8);
    CHECK_OK(strait_relay_reply_unpack(reply));
    strait_relay_reply_pack(STRAIT_RELAY_ALONE, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_EAGAIN, "nobody else came");
    strait_relay_reply_pack(STRAIT_RELAY_FULL, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_ECLOSED, "too many connections");
    CHECK_FAILS(strait_relay_reply_unpack((const unsigned char *)"HTTP/1.1"), STRAIT_EPROTO,
                "no relay");
}

static void test_addresses(void **state) {
    (void)state;
    char where[64], text[STRAIT_ADDRESS_MAX];
    strait_relay_token token = {{0}};
    token.bytes[0] = 0xab;
    CHECK_OK(strait_relay_address_print("[::1]:7000", &token, text, sizeof text));
    CHECK(strncmp(text, "relay://[::1]:7000/ab00", 23) == 0 && strlen(text) == 83);
    CHECK_OK(strait_relay_address_parse(text, where, sizeof where, &token));
    assert_string_equal(where, "[::1]:7000");
    assert_int_equal(token.bytes[0], 0xab);
    CHECK_FAILS(strait_relay_address_print("h:1", &token, text, 70), STRAIT_EINVAL, "too long");
    static const char *const bad[] = {"relay://h:1", "relay://h:1/", "relay:///00", "h:1",
                                      "relay://h:1/00"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(strait_relay_address_parse(bad[i], where, sizeof where, &token), STRAIT_EINVAL,
                    "expected relay://HOST:PORT/TOKEN");
}

/* ---- nodes ---- */

static void meet_and_talk(const char *where, int n_streams, int n_messages, size_t largest) {
    struct relay_rig r;
    struct relay_node a = {.peer = 0}, b = {.peer = 0};
    strait_relay_stats stats;
    relay_rig_open(&r, &(strait_relay_config){.per_host = 0}, where);
    relay_rig_pair(&a, &b, r.address, r.address, n_streams);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
    relay_rig_exchange(&a, &b, n_messages, largest);
    relay_node_close(&a);
    relay_node_close(&b);
    relay_rig_stop(&r, &stats);
    assert_int_equal(stats.n_joined, n_streams);
    CHECK(stats.bytes > 1000);
    assert_int_equal(stats.n_refused, 0);
}

static void test_two_nodes_talk(void **state) {
    (void)state;
    meet_and_talk("127.0.0.1:0", 1, 300, 3000);
}

static void test_over_ipv6(void **state) {
    (void)state;
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int has_it = bind(fd, (const struct sockaddr *)&own, sizeof own) == 0;
    (void)close(fd);
    if (!has_it) skip(); // there is no IPv6 on this machine
    meet_and_talk("[::1]:0", 1, 20, 3000);
}

static void test_several_streams_of_large_messages(void **state) {
    (void)state;
    meet_and_talk("127.0.0.1:0", 4, 40, 1500000);
}

static void test_whoever_comes_first_waits(void **state) {
    (void)state;
    struct relay_rig r;
    struct relay_node a = {.peer = 0}, b = {.peer = 0};
    char where[STRAIT_ADDRESS_MAX];
    /* No relay yet: both keep trying. */
    relay_rig_open(&r, &(strait_relay_config){.per_host = 0}, "127.0.0.1:0");
    (void)snprintf(where, sizeof where, "%s", r.where);
    relay_rig_stop(&r, NULL);
    relay_rig_pair(&a, &b, r.address, r.address, 1);
    CHECK_FAILS(strait_mesh_wait_up(a.mesh, a.peer, 300), STRAIT_ETIMEDOUT, "");
    struct relay_rig again;
    relay_rig_open(&again, &(strait_relay_config){.per_host = 0}, where);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
    relay_rig_exchange(&a, &b, 20, 1000);
    /* The relay dies and comes back: so does the link. */
    relay_rig_stop(&again, NULL);
    while (strait_mesh_is_up(a.mesh, a.peer) || strait_mesh_is_up(b.mesh, b.peer))
        rest_ms(10);
    relay_rig_open(&again, &(strait_relay_config){.per_host = 0}, where);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
    CHECK_OK(strait_mesh_wait_up(b.mesh, b.peer, 20000));
    relay_rig_exchange(&a, &b, 20, 1000);
    relay_node_close(&a);
    relay_node_close(&b);
    relay_rig_stop(&again, NULL);
}

/* Alice talks until Bob has heard something; with `must_end`, on a link that came after one that
 * was lost. What is lost is lost, what arrives is as it was sent. */
static void say_until_heard(struct relay_node *a, struct relay_node *b, int must_end) {
    int has_ended = !must_end, has_heard = 0;
    while (!has_heard) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_msg_open(strait_mesh_pool(a->mesh), 20, 500, &msg));
        memset(msg->body, 0x5a, msg->size);
        (void)strait_mesh_send(a->mesh, a->peer, &msg);
        strait_msg_close(&msg);
        if (strait_mesh_receive(b->mesh, 2, &msg) != STRAIT_OK) continue;
        if (msg->type == STRAIT_MSG_DOWN) has_ended = 1;
        if (msg->type == 20) {
            for (size_t i = 0; i < msg->size; i++)
                CHECK(msg->body[i] == 0x5a);
            has_heard = has_ended;
        }
        strait_msg_close(&msg);
    }
}

/* A byte spoiled in the greetings, in the handshake, in what is said: the link ends, is made again,
 * and neither the relay nor what the nodes say suffers. */
static void test_a_spoiled_byte_ends_the_link_only(void **state) {
    (void)state;
    static const int64_t places[] = {12, 60, 300, 900, 1500, 3000, 20000};
    struct relay_rig r;
    relay_rig_open(&r, &(strait_relay_config){.waiting_ms = 500}, "127.0.0.1:0");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct relay_node a = {.peer = 0}, b = {.peer = 0};
        struct relay_meddler m;
        char address[STRAIT_ADDRESS_MAX];
        relay_meddler_open(&m, r.where, places[i]);
        CHECK_OK(strait_relay_address_print(m.where, &r.token, address, sizeof address));
        relay_rig_pair(&a, &b, address, r.address, 1);
        CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
        say_until_heard(&a, &b, m.n_spoiled == 0);
        assert_int_equal(m.n_spoiled, 1);
        relay_node_close(&a);
        relay_node_close(&b);
        relay_meddler_close(&m);
    }
    strait_relay_stats stats;
    relay_rig_stop(&r, &stats);
    assert_int_equal(stats.n_joined, 13); // seven links, six of them twice
}

/* Somebody else has learned the token. He meets a node, and that is all. */
static void test_a_token_opens_nothing(void **state) {
    (void)state;
    struct relay_rig r;
    struct relay_node a = {.peer = 0}, b = {.peer = 0}, mallory = {.peer = 0}, nobody = {.peer = 0};
    relay_rig_open(&r, &(strait_relay_config){.per_host = 0}, "127.0.0.1:0");
    relay_rig_pair(&a, &b, r.address, r.address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
    relay_rig_pair(&mallory, &nobody, "127.0.0.1:1",
                   "relay://127.0.0.1:1/"
                   "0000000000000000000000000000000000000000000000000000000000000000",
                   1);
    int peer = 0;
    const strait_mesh_peer bob = {
        .name = "bob again", .key = *strait_identity_fingerprint(b.identity), .address = r.address};
    CHECK_OK(strait_mesh_add(mallory.mesh, &bob, &peer));
    CHECK_FAILS(strait_mesh_wait_up(mallory.mesh, peer, 20000), STRAIT_EAUTH, "unknown to 'bob'");
    relay_rig_exchange(&a, &b, 20, 1000);
    char words[STRAIT_WORDS_MAX];
    assert_int_equal(strait_mesh_refusals(b.mesh, words), 1);
    relay_node_close(&mallory);
    relay_node_close(&nobody);
    relay_node_close(&a);
    relay_node_close(&b);
    relay_rig_stop(&r, NULL);
}

/* ---- limits ---- */

static int greet(const char *where, int from, strait_relay_role role,
                 const strait_relay_token *token) {
    unsigned char greeting[STRAIT_RELAY_GREETING];
    const int fd = relay_rig_connect(where, from);
    CHECK(fd >= 0);
    strait_relay_greeting_pack(role, token, greeting);
    CHECK(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting);
    return fd;
}

/* The relay's answer; an error when it hung up without one. */
static strait_err hear(int fd) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    const struct timeval limit = {.tv_sec = 10};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    if (recv(fd, reply, sizeof reply, MSG_WAITALL) != sizeof reply)
        return STRAIT_FAIL(STRAIT_EINVAL, "hung up");
    return strait_relay_reply_unpack(reply);
}

static void test_pairs_are_opposites_with_one_token(void **state) {
    (void)state;
    struct relay_rig r;
    strait_relay_token other;
    char got[8] = "";
    relay_rig_open(&r, &(strait_relay_config){.waiting_ms = 400}, "127.0.0.1:0");
    other = r.token;
    other.bytes[31] ^= 1;
    const int wrong = greet(r.where, 1, STRAIT_RELAY_LISTENS, &other);
    const int twin = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    rest_ms(50);
    const int dials = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    rest_ms(50);
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
    unsigned char greeting[STRAIT_RELAY_GREETING] = "GET / HTTP/1.1\r\nHost: relay\r\n\r\n";
    relay_rig_open(&r, &(strait_relay_config){.greeting_ms = 300, .idle_ms = 300}, "127.0.0.1:0");
    const int nonsense = relay_rig_connect(r.where, 1);
    CHECK(send(nonsense, greeting, sizeof greeting, 0) == sizeof greeting);
    CHECK_FAILS(hear(nonsense), STRAIT_EPROTO, "does not understand");
    const int silent = relay_rig_connect(r.where, 1);
    const int eager = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    CHECK(send(eager, "before its turn", 15, 0) == 15);
    CHECK_FAILS(hear(eager), STRAIT_EINVAL, "hung up");
    CHECK_FAILS(hear(silent), STRAIT_EPROTO, "does not understand");
    const int a = greet(r.where, 1, STRAIT_RELAY_LISTENS, &r.token);
    const int b = greet(r.where, 1, STRAIT_RELAY_DIALS, &r.token);
    CHECK_OK(hear(a));
    CHECK_OK(hear(b));
    CHECK_FAILS(hear(a), STRAIT_EINVAL, "hung up"); // a silent pair is parted
    (void)close(nonsense);
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
    relay_rig_open(&r, &(strait_relay_config){.per_host = 8}, "127.0.0.1:0");
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
        if (sent <= 0 && got <= 0) rest_ms(1);
    }
    const double seconds = (double)(strait_clock_ns() - start) * 1e-9;
    print_message("%d bytes at %d a second took %.2f s\n", BYTES, RATE, seconds);
    CHECK(seconds > 0.5 && seconds < 5);
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
    const strait_relay_config config = {.per_host = 1000, .per_host_rate = 100000};
    const pid_t relay = start_relay(ends[1], &config);
    CHECK(read(ends[0], where, sizeof where) == sizeof where);
    CHECK_OK(strait_relay_address_print(where, &token, address, sizeof address));
    const int64_t before = resident_kb(relay);
    struct relay_node a = {.peer = 0}, b = {.peer = 0};
    relay_rig_pair(&a, &b, address, address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
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
    relay_node_close(&a); // and who comes now is still served
    relay_node_close(&b);
    relay_rig_pair(&a, &b, address, address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 20000));
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
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_two_nodes_talk),
        cmocka_unit_test(test_over_ipv6),
        cmocka_unit_test(test_several_streams_of_large_messages),
        cmocka_unit_test(test_whoever_comes_first_waits),
        cmocka_unit_test(test_a_spoiled_byte_ends_the_link_only),
        cmocka_unit_test(test_a_token_opens_nothing),
        cmocka_unit_test(test_pairs_are_opposites_with_one_token),
        cmocka_unit_test(test_nonsense_and_silence_end),
        cmocka_unit_test(test_one_address_has_its_share),
        cmocka_unit_test(test_a_limited_pair_is_slowed),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
