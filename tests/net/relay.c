/* Nodes that meet at a relay, and what the relay cannot do to them. */
#include "port.h"
#include "relay_rig.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- bytes ---- */

static void test_golden_bytes(void **state) {
    (void)state;
    strait_relay_token token, back;
    strait_relay_role role = STRAIT_RELAY_DIALS;
    unsigned char greeting[STRAIT_RELAY_REQUEST], reply[STRAIT_RELAY_REPLY];
    for (int i = 0; i < STRAIT_RELAY_TOKEN; i++)
        token.bytes[i] = (unsigned char)(i + 1);
    strait_relay_request_pack(STRAIT_RELAY_LISTENS, &token, greeting);
    assert_memory_equal(greeting, "StRl\1\1\0\0\1\2\3", 11);
    CHECK_OK(strait_relay_request_unpack(greeting, &role, &back));
    CHECK(role == STRAIT_RELAY_LISTENS && strait_relay_token_equal(&token, &back));
    for (int i = 0; i < 8; i++) { // no bit of its first bytes is free
        for (int bit = 0; bit < 8; bit++) {
            greeting[i] ^= (unsigned char)(1 << bit);
            const strait_err err = strait_relay_request_unpack(greeting, &role, &back);
            assert_int_equal(err, i == 5 && bit == 0 ? STRAIT_OK : STRAIT_EPROTO);
            greeting[i] ^= (unsigned char)(1 << bit);
        }
    }
    strait_relay_reply_pack(STRAIT_RELAY_OK, reply);
    assert_memory_equal(reply, "StRl\1\0\0\0", 8);
    CHECK_OK(strait_relay_reply_unpack(reply));
    strait_relay_reply_pack(STRAIT_RELAY_NO_PEER, reply);
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
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 0}, where);
    relay_rig_pair(&a, &b, r.address, r.address, n_streams);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    relay_rig_exchange(&a, &b, n_messages, largest);
    relay_node_close(&a);
    relay_node_close(&b);
    relay_rig_stop(&r, &stats);
    assert_int_equal(stats.n_paired, n_streams);
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
    (void)snprintf(where, sizeof where, "127.0.0.1:%d", port_choose());
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 0}, where);
    relay_rig_stop(&r, NULL);
    relay_rig_pair(&a, &b, r.address, r.address, 1);
    CHECK_FAILS(strait_mesh_wait_up(a.mesh, a.peer, 300), STRAIT_ETIMEDOUT, "");
    struct relay_rig again;
    relay_rig_open(&again, &(strait_relay_config){.max_per_address = 0}, where);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    relay_rig_exchange(&a, &b, 20, 1000);
    /* The relay dies and comes back: so does the link. */
    relay_rig_stop(&again, NULL);
    while (strait_mesh_is_up(a.mesh, a.peer) || strait_mesh_is_up(b.mesh, b.peer))
        relay_rig_rest(10);
    relay_rig_open(&again, &(strait_relay_config){.max_per_address = 0}, where);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    CHECK_OK(strait_mesh_wait_up(b.mesh, b.peer, 60000));
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
    relay_rig_open(&r, &(strait_relay_config){.waiting_timeout_ms = 500}, "127.0.0.1:0");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct relay_node a = {.peer = 0}, b = {.peer = 0};
        struct relay_meddler m;
        char address[STRAIT_ADDRESS_MAX];
        relay_meddler_open(&m, r.where, places[i]);
        CHECK_OK(strait_relay_address_print(m.where, &r.token, address, sizeof address));
        relay_rig_pair(&a, &b, address, r.address, 1);
        CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
        say_until_heard(&a, &b, m.n_spoiled == 0);
        assert_int_equal(m.n_spoiled, 1);
        relay_node_close(&a);
        relay_node_close(&b);
        relay_meddler_close(&m);
    }
    strait_relay_stats stats;
    relay_rig_stop(&r, &stats);
    CHECK(stats.n_paired >= 13); // seven links, six of them twice
}

/* Somebody else has learned the token. He meets a node, and that is all. */
static void test_a_token_opens_nothing(void **state) {
    (void)state;
    struct relay_rig r;
    struct relay_node a = {.peer = 0}, b = {.peer = 0}, mallory = {.peer = 0}, nobody = {.peer = 0};
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 0}, "127.0.0.1:0");
    relay_rig_pair(&a, &b, r.address, r.address, 1);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    relay_rig_pair(&mallory, &nobody, "127.0.0.1:1",
                   "relay://127.0.0.1:1/"
                   "0000000000000000000000000000000000000000000000000000000000000000",
                   1);
    int peer = 0;
    const strait_mesh_peer bob = {
        .name = "bob again", .key = *strait_identity_fingerprint(b.identity), .address = r.address};
    CHECK_OK(strait_mesh_add(mallory.mesh, &bob, &peer));
    CHECK_FAILS(strait_mesh_wait_up(mallory.mesh, peer, 60000), STRAIT_EAUTH, "unknown to 'bob'");
    relay_rig_exchange(&a, &b, 20, 1000);
    char reason[STRAIT_REASON_MAX];
    assert_int_equal(strait_mesh_refusals(b.mesh, reason), 1);
    relay_node_close(&mallory);
    relay_node_close(&nobody);
    relay_node_close(&a);
    relay_node_close(&b);
    relay_rig_stop(&r, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_two_nodes_talk),
        cmocka_unit_test(test_over_ipv6),
        cmocka_unit_test(test_several_streams_of_large_messages),
        cmocka_unit_test(test_whoever_comes_first_waits),
        cmocka_unit_test(test_a_spoiled_byte_ends_the_link_only),
        cmocka_unit_test(test_a_token_opens_nothing),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
