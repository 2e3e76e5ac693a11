/* Machines that connect through a relay, and what a hostile relay or third party cannot do. */
#include "port.h"
#include "relay_rig.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- bytes ---- */

static void messages_have_the_documented_bytes(void **state) {
    (void)state;
    strait_relay_token token, back;
    strait_relay_role role = STRAIT_RELAY_DIALS;
    unsigned char request[STRAIT_RELAY_REQUEST], reply[STRAIT_RELAY_REPLY];
    for (int i = 0; i < STRAIT_RELAY_TOKEN; i++)
        token.bytes[i] = (unsigned char)(i + 1);
    strait_relay_request_pack(STRAIT_RELAY_LISTENS, &token, request);
    assert_memory_equal(request, "StRl\1\1\0\0\1\2\3", 11);
    CHECK_OK(strait_relay_request_unpack(request, &role, &back));
    CHECK(role == STRAIT_RELAY_LISTENS && strait_relay_token_equal(&token, &back));
    for (int i = 0; i < 8; i++) { // every bit of the first eight bytes is checked
        for (int bit = 0; bit < 8; bit++) {
            request[i] ^= (unsigned char)(1 << bit);
            const strait_err err = strait_relay_request_unpack(request, &role, &back);
            const strait_err refusal = i == 4 ? STRAIT_ENOTSUP : STRAIT_EPROTO; // 4: version
            assert_int_equal(err, i == 5 && bit == 0 ? STRAIT_OK : refusal);
            request[i] ^= (unsigned char)(1 << bit);
        }
    }
    strait_relay_reply_pack(STRAIT_RELAY_OK, reply);
    assert_memory_equal(reply, "StRl\1\0\0\0", 8);
    CHECK_OK(strait_relay_reply_unpack(reply));
    strait_relay_reply_pack(STRAIT_RELAY_NO_PEER, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_EAGAIN, "no peer came");
    strait_relay_reply_pack(STRAIT_RELAY_FULL, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_ECLOSED, "too many connections");
    strait_relay_reply_pack(STRAIT_RELAY_BAD_REQUEST, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_EPROTO, "rejected our request");
    strait_relay_reply_pack(STRAIT_RELAY_DENIED, reply);
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_EPROTO, "not open to everyone");
    reply[5] = 9; // final, too: another attempt would get the same
    CHECK_FAILS(strait_relay_reply_unpack(reply), STRAIT_EPROTO, "the unknown status 9");
    reply[4] = 9;
    CHECK_FAILS(
        strait_relay_reply_unpack(reply), STRAIT_EPROTO,
        "the relay uses relay protocol version 9, this program version 1: install the same");
    CHECK_FAILS(strait_relay_reply_unpack((const unsigned char *)"HTTP/1.1"), STRAIT_EPROTO,
                "not a relay");
}

static atomic_int n_reports;

static void on_peer_refused(void *unused) {
    (void)unused;
    n_reports++;
}

static void pairs_only_tokens_of_its_secret(void **state) {
    (void)state;
    struct relay_rig r;
    strait_relay_secret secret = {{7}};
    n_reports = 0;
    relay_rig_open(&r, &(strait_relay_config){.secret = &secret, .peer_refused = on_peer_refused},
                   "127.0.0.1:0");
    for (int i = 0; i < 2; i++) {
        const int stranger = relay_rig_request(r.where, 1, (strait_relay_role)i, &r.token);
        CHECK_FAILS(relay_rig_reply(stranger), STRAIT_EPROTO, "not open to everyone");
        (void)close(stranger);
    }
    assert_int_equal(n_reports, 1);
    strait_relay_token token = r.token;
    CHECK_OK(strait_relay_secret_sign(&secret, &token));
    const int a = relay_rig_request(r.where, 1, STRAIT_RELAY_LISTENS, &token);
    const int b = relay_rig_request(r.where, 1, STRAIT_RELAY_DIALS, &token);
    CHECK_OK(relay_rig_reply(a));
    CHECK_OK(relay_rig_reply(b));
    (void)close(a);
    (void)close(b);
    relay_rig_stop(&r, NULL);
}

static void addresses_round_trip(void **state) {
    (void)state;
    char where[64], text[STRAIT_ADDRESS_MAX];
    strait_relay_token token = {{0}};
    token.bytes[0] = 0xab;
    CHECK_OK(strait_relay_address_print("[::1]:7000", &token, text, sizeof text));
    CHECK(strncmp(text, "relay://[::1]:7000/ab00", 23) == 0 && strlen(text) == 83);
    CHECK_OK(strait_relay_address_parse(text, where, sizeof where, &token));
    assert_string_equal(where, "[::1]:7000");
    assert_int_equal(token.bytes[0], 0xab);
    CHECK_OK(strait_relay_address_parse(text, where, sizeof "[::1]:7000", &token));
    CHECK_FAILS(strait_relay_address_parse(text, where, sizeof "[::1]:7000" - 1, &token),
                STRAIT_EINVAL, "expected relay://HOST:PORT/TOKEN");
    CHECK_FAILS(strait_relay_address_print("h:1", &token, text, 70), STRAIT_EINVAL, "too long");
    static const char *const bad[] = {"relay://h:1", "relay://h:1/", "relay:///00", "h:1",
                                      "relay://h:1/00"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(strait_relay_address_parse(bad[i], where, sizeof where, &token), STRAIT_EINVAL,
                    "expected relay://HOST:PORT/TOKEN");
}

/* ---- nodes ---- */

static void connect_and_exchange(const char *where, int n_streams, int n_messages, size_t largest) {
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

static void pairs_two_machines(void **state) {
    (void)state;
    connect_and_exchange("127.0.0.1:0", 1, 300, 3000);
}

static void works_over_ipv6(void **state) {
    (void)state;
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int has_it = bind(fd, (const struct sockaddr *)&own, sizeof own) == 0;
    (void)close(fd);
    if (!has_it) skip(); // there is no IPv6 on this machine
    connect_and_exchange("[::1]:0", 1, 20, 3000);
}

static void carries_large_messages_over_several_streams(void **state) {
    (void)state;
    connect_and_exchange("127.0.0.1:0", 4, 40, 1500000);
}

static void peers_wait_for_the_relay_and_survive_its_restart(void **state) {
    (void)state;
    struct relay_rig r;
    struct relay_node a = {.peer = 0}, b = {.peer = 0};
    char where[STRAIT_ADDRESS_MAX];
    /* Without a relay both keep trying. */
    (void)snprintf(where, sizeof where, "127.0.0.1:%d", port_choose());
    relay_rig_open(&r, &(strait_relay_config){.max_per_address = 0}, where);
    relay_rig_stop(&r, NULL);
    relay_rig_pair(&a, &b, r.address, r.address, 1);
    CHECK_FAILS(strait_mesh_wait_up(a.mesh, a.peer, 300), STRAIT_ETIMEDOUT, "");
    struct relay_rig again;
    relay_rig_open(&again, &(strait_relay_config){.max_per_address = 0}, where);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    relay_rig_exchange(&a, &b, 20, 1000);
    /* The relay is restarted: the link is restored. */
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

/* Alice sends until Bob has received a message; with `must_end`, on a link that replaced a lost
 * one. Messages may be lost with a link, but those that arrive are intact. */
static void send_until_received(struct relay_node *a, struct relay_node *b, int must_end) {
    int has_ended = !must_end, has_received = 0;
    while (!has_received) {
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
            has_received = has_ended;
        }
        strait_msg_close(&msg);
    }
}

/* A byte is corrupted in the request, the handshakes or a message: the link closes and is restored,
 * and neither the relay nor any message is damaged. */
static void a_corrupted_byte_only_closes_the_link(void **state) {
    (void)state;
    static const int64_t places[] = {12, 60, 300, 900, 1500, 3000, 20000};
    struct relay_rig r;
    relay_rig_open(&r, &(strait_relay_config){.waiting_timeout_ms = 500}, "127.0.0.1:0");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct relay_node a = {.peer = 0}, b = {.peer = 0};
        struct relay_corrupter m;
        char address[STRAIT_ADDRESS_MAX];
        relay_corrupter_open(&m, r.where, places[i]);
        CHECK_OK(strait_relay_address_print(m.where, &r.token, address, sizeof address));
        relay_rig_pair(&a, &b, address, r.address, 1);
        CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
        send_until_received(&a, &b, m.n_corrupted == 0);
        assert_int_equal(m.n_corrupted, 1);
        relay_node_close(&a);
        relay_node_close(&b);
        relay_corrupter_close(&m);
    }
    strait_relay_stats stats;
    relay_rig_stop(&r, &stats);
    CHECK(stats.n_paired >= 13); // seven links, six of them twice
}

/* A third party that has learned the token is paired with a machine, which refuses its key. */
static void a_stolen_token_is_useless_without_the_key(void **state) {
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
        cmocka_unit_test(messages_have_the_documented_bytes),
        cmocka_unit_test(pairs_only_tokens_of_its_secret),
        cmocka_unit_test(addresses_round_trip),
        cmocka_unit_test(pairs_two_machines),
        cmocka_unit_test(works_over_ipv6),
        cmocka_unit_test(carries_large_messages_over_several_streams),
        cmocka_unit_test(peers_wait_for_the_relay_and_survive_its_restart),
        cmocka_unit_test(a_corrupted_byte_only_closes_the_link),
        cmocka_unit_test(a_stolen_token_is_useless_without_the_key),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
