/* The mesh: several threads, peers that return, refusals and counters. */
#include "net/mesh/mesh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "contract/transport/transport_rig.h"
#include "net/core/priority_queue.h"
#include "net/inproc/endpoint.h"
#include "port.h"

#include <pthread.h>
#include <stdio.h>

struct node {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    char address[STRAIT_ADDRESS_MAX];
    int peer; // the other
};

static struct strait_inproc_network *network;
static struct node a, b;
static strait_mesh_config config;

static int set_up(void **state) {
    CHECK_OK(strait_inproc_network_open(&network));
    CHECK_OK(strait_identity_generate(&a.identity));
    CHECK_OK(strait_identity_generate(&b.identity));
    config = (strait_mesh_config){.scheme = *state, .transport = {.network = network, .run = {7}}};
    return 0;
}

static void open_node(struct node *n, const char *name) {
    strait_mesh_config c = config;
    c.transport.identity = n->identity;
    (void)snprintf(c.transport.name, sizeof c.transport.name, "%s", name);
    CHECK_OK(strait_mesh_open(&c, &n->mesh));
    char where[64];
    (void)snprintf(where, sizeof where, "127.0.0.1:%d", port_choose());
    CHECK_OK(strait_mesh_listen(n->mesh, strcmp(config.scheme, "inproc") == 0 ? name : where,
                                n->address));
}

static void add(struct node *n, const struct node *other, const char *name, const char *address) {
    strait_mesh_peer peer = {.key = *strait_identity_fingerprint(other->identity),
                             .address = address};
    (void)snprintf(peer.name, sizeof peer.name, "%s", name);
    CHECK_OK(strait_mesh_add(n->mesh, &peer, &n->peer));
}

static void connect_nodes(void) {
    open_node(&a, "stage-0");
    open_node(&b, "stage-1");
    add(&b, &a, "stage-0", NULL);
    add(&a, &b, "stage-1", b.address);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
    CHECK_OK(strait_mesh_wait_up(b.mesh, b.peer, 60000));
}

static int tear_down(void **state) {
    (void)state;
    strait_mesh_close(&a.mesh);
    strait_mesh_close(&b.mesh);
    strait_identity_close(&a.identity);
    strait_identity_close(&b.identity);
    strait_inproc_network_close(&network);
    return 0;
}

static struct strait_msg *message(const struct node *n, uint32_t step, size_t size) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(n->mesh), 20, size, &msg));
    msg->priority = STRAIT_PRIORITY_ACTIVATION;
    msg->step = step;
    memset(msg->body, (int)(step & 255), size);
    return msg;
}

/* Receives the next message that is not an UP or DOWN notice. */
static struct strait_msg *receive_message(const struct node *n) {
    for (;;) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_mesh_receive(n->mesh, 60000, &msg));
        if (msg->type >= STRAIT_MSG_FIRST) return msg;
        strait_msg_close(&msg);
    }
}

/* Receives the next notice of this type. */
static struct strait_msg *receive_notice(const struct node *n, uint8_t type) {
    for (;;) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_mesh_receive(n->mesh, 60000, &msg));
        if (msg->type == type) return msg;
        strait_msg_close(&msg);
    }
}

enum {
    EACH_WAY = 2000
};

static void *send_all(void *arg) {
    const struct node *n = arg;
    for (uint32_t i = 0; i < EACH_WAY; i++) {
        struct strait_msg *msg = message(n, i, i * 13 % 5000);
        if (strait_mesh_send_wait(n->mesh, n->peer, 60000, &msg) != STRAIT_OK) return NULL;
    }
    return arg;
}

/* Four threads: each node sends from one and receives on another. */
static void *receive_all(void *arg) {
    const struct node *n = arg;
    for (uint32_t i = 0; i < EACH_WAY; i++) {
        struct strait_msg *msg = receive_message(n);
        const int is_good = msg->step == i && msg->peer == n->peer && msg->size == i * 13 % 5000 &&
                            (msg->size == 0 || msg->body[msg->size - 1] == (i & 255));
        strait_msg_close(&msg);
        if (!is_good) return NULL;
    }
    return arg;
}

static void sends_in_both_directions_from_four_threads(void **state) {
    (void)state;
    config.queue_bytes = 20000;
    config.transport.queue_bytes = 10000;
    config.inbox_bytes = 30000;
    connect_nodes();
    pthread_t threads[4];
    CHECK(pthread_create(&threads[0], NULL, send_all, &a) == 0);
    CHECK(pthread_create(&threads[1], NULL, send_all, &b) == 0);
    CHECK(pthread_create(&threads[2], NULL, receive_all, &a) == 0);
    CHECK(pthread_create(&threads[3], NULL, receive_all, &b) == 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    strait_link_stats sent, got;
    CHECK_OK(strait_mesh_stats(a.mesh, a.peer, &sent));
    CHECK_OK(strait_mesh_stats(b.mesh, b.peer, &got));
    CHECK(sent.sent_messages == EACH_WAY && got.received_messages == EACH_WAY);
    CHECK(sent.sent_payload == got.received_payload && sent.queued_bytes == 0);
}

static void allocates_nothing_after_warm_up(void **state) {
    (void)state;
    connect_nodes();
    CHECK_OK(strait_msg_pool_reserve(strait_mesh_pool(a.mesh), 40000, 4));
    CHECK_OK(strait_msg_pool_reserve(strait_mesh_pool(b.mesh), 40000, 4));
    CHECK_OK(strait_msg_pool_reserve(strait_mesh_pool(a.mesh), 8, 8)); // PINGs
    CHECK_OK(strait_msg_pool_reserve(strait_mesh_pool(b.mesh), 8, 8));
    int64_t before = 0;
    for (uint32_t i = 0; i < 300; i++) {
        if (i == 200) before = strait_alloc_count();
        struct strait_msg *msg = message(&a, i, 40000);
        CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));
        msg = receive_message(&b);
        CHECK(msg->step == i);
        strait_msg_close(&msg);
    }
    CHECK(strait_alloc_count() == before);
}

static void declines_when_full_and_sends_urgent_first(void **state) {
    (void)state;
    config.queue_bytes = 100000;
    open_node(&a, "stage-0");
    open_node(&b, "stage-1");
    add(&a, &b, "stage-1", NULL); // the peer does not dial yet: messages wait
    uint32_t n = 0;
    struct strait_msg *msg = NULL;
    strait_err err = STRAIT_OK;
    while (err == STRAIT_OK) {
        msg = message(&a, n, 30000);
        err = strait_mesh_send(a.mesh, a.peer, &msg);
        n += err == STRAIT_OK;
    }
    CHECK(err == STRAIT_EAGAIN && n == 3 && msg != NULL);
    CHECK_FAILS(strait_mesh_send_wait(a.mesh, a.peer, 20, &msg), STRAIT_ETIMEDOUT,
                "stage-1: its send queue stayed full for 20 ms");
    strait_msg_close(&msg);
    msg = message(&a, 99, 30000);
    msg->priority = STRAIT_PRIORITY_GRADIENT;
    CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));
    add(&b, &a, "stage-0", a.address);
    msg = receive_message(&b);
    CHECK(msg->step == 99); // it overtook the rest
    strait_msg_close(&msg);
    for (uint32_t i = 0; i < 3; i++) {
        msg = receive_message(&b);
        CHECK(msg->step == i);
        strait_msg_close(&msg);
    }
}

/* Messages without a body take memory too, so their number is limited as well. */
static void queue_limit_counts_bytes_and_messages(void **state) {
    (void)state;
    const struct strait_priority_queue bytes = {.n_messages = 1, .n_bytes = 101};
    const struct strait_priority_queue many = {.n_messages = 40000}, more = {.n_messages = 70000};
    CHECK(strait_priority_queue_is_over(&bytes, 100, 1) &&
          !strait_priority_queue_is_over(&bytes, 101, 2));
    CHECK(!strait_priority_queue_is_over(&many, 100, 1) &&
          strait_priority_queue_is_over(&many, 100, 2));
    CHECK(strait_priority_queue_is_over(&more, 100, 1));
}

static void rejects_bad_arguments(void **state) {
    (void)state;
    connect_nodes();
    struct strait_msg *msg = message(&a, 0, 1);
    CHECK_FAILS(strait_mesh_send(a.mesh, 5, &msg), STRAIT_EINVAL,
                "unknown peer number 5, expected 0 to 0");
    msg->type = STRAIT_MSG_BYE;
    CHECK_FAILS(strait_mesh_send(a.mesh, 0, &msg), STRAIT_EINVAL, "type 2, expected 16 to 255");
    msg->type = 20;
    msg->priority = 3;
    CHECK_FAILS(strait_mesh_send(a.mesh, 0, &msg), STRAIT_EINVAL, "priority 3");
    strait_msg_close(&msg);
    msg = message(&a, 0, ((size_t)64 << 20) + 1);
    CHECK_FAILS(strait_mesh_send(a.mesh, 0, &msg), STRAIT_EINVAL, "expected at most 67108864");
    strait_msg_close(&msg);
    msg = receive_notice(&a, STRAIT_MSG_UP);
    CHECK(msg->peer == a.peer);
    strait_msg_close(&msg);
    CHECK_FAILS(strait_mesh_receive(a.mesh, 10, &msg), STRAIT_ETIMEDOUT, "no message within 10 ms");
    strait_link_stats stats;
    CHECK_FAILS(strait_mesh_stats(a.mesh, -1, &stats), STRAIT_EINVAL, "unknown peer number -1");
    strait_mesh_peer again = {.name = "twin", .key = *strait_identity_fingerprint(b.identity)};
    int peer = 0;
    CHECK_FAILS(strait_mesh_add(a.mesh, &again, &peer), STRAIT_EINVAL,
                "cannot add 'twin': it has the same key as 'stage-1'");
}

/* b comes back to its address. */
static void return_to(const char *where) {
    strait_mesh_config c = config;
    c.transport.identity = b.identity;
    CHECK_OK(strait_mesh_open(&c, &b.mesh));
    CHECK_OK(strait_mesh_listen(b.mesh, where, b.address));
    add(&b, &a, "stage-0", NULL);
    CHECK_OK(strait_mesh_wait_up(a.mesh, a.peer, 60000));
}

/* The peer closes, which is notified with its name, address and key, and returns, whereupon the
 * link is dialled again. */
static void redials_a_peer_that_returns(void **state) {
    (void)state;
    connect_nodes();
    char where[STRAIT_ADDRESS_MAX];
    memcpy(where, b.address, sizeof where);
    struct strait_msg *msg = message(&a, 1, 10);
    CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));
    msg = receive_message(&b);
    strait_msg_close(&msg);
    strait_mesh_close(&b.mesh);
    msg = receive_notice(&a, STRAIT_MSG_DOWN);
    CHECK(msg->peer == a.peer && msg->why == STRAIT_ECLOSED);
    char expected[STRAIT_REASON_MAX], key[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(strait_identity_fingerprint(b.identity), key);
    (void)snprintf(expected, sizeof expected, "stage-1 at %s (key %.8s): peer closed the link",
                   where, key);
    assert_string_equal((const char *)msg->body, expected);
    strait_msg_close(&msg);
    CHECK(!strait_mesh_is_up(a.mesh, a.peer));
    CHECK_FAILS(strait_mesh_wait_up(a.mesh, a.peer, 100), STRAIT_ETIMEDOUT, "stage-1 at ");
    msg = message(&a, 2, 10); // queued until the link is up
    CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));

    return_to(where);
    msg = receive_message(&b);
    CHECK(msg->step == 2);
    strait_msg_close(&msg);
    strait_link_stats stats;
    CHECK_OK(strait_mesh_stats(a.mesh, a.peer, &stats));
    CHECK(stats.sent_messages == 2); // sum of both links
}

/* What was meant for a link that was lost must not come before what the new link begins with. */
static void drops_what_was_queued_for_a_lost_link(void **state) {
    (void)state;
    char where[STRAIT_ADDRESS_MAX];
    config.drops_unsent = 1;
    connect_nodes();
    memcpy(where, b.address, sizeof where);
    strait_mesh_close(&b.mesh);
    struct strait_msg *msg = receive_notice(&a, STRAIT_MSG_DOWN);
    strait_msg_close(&msg);
    msg = message(&a, 1, 10);
    CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));
    return_to(where);
    msg = message(&a, 2, 10);
    CHECK_OK(strait_mesh_send(a.mesh, a.peer, &msg));
    msg = receive_message(&b);
    CHECK(msg->step == 2);
    strait_msg_close(&msg);
}

static void does_not_redial_after_refusal(void **state) {
    (void)state;
    open_node(&a, "stage-0");
    open_node(&b, "stage-1");
    add(&a, &b, "stage-1", b.address); // b does not know a
    CHECK_FAILS(strait_mesh_wait_up(a.mesh, a.peer, 60000), STRAIT_EAUTH,
                "): refused by peer: key ");
    char reason[STRAIT_REASON_MAX], key[STRAIT_FINGERPRINT_TEXT];
    const int64_t until = strait_clock_ns() + (int64_t)60 * 1000000000;
    while (strait_mesh_refusals(b.mesh, reason) == 0 && strait_clock_ns() < until) {
    }
    strait_fingerprint_text(strait_identity_fingerprint(a.identity), key);
    CHECK(strait_mesh_refusals(b.mesh, reason) == 1); // a does not dial again
    CHECK(strstr(reason, key) != NULL && strstr(reason, "is unknown to 'stage-1'") != NULL);
    struct strait_msg *msg = receive_notice(&a, STRAIT_MSG_DOWN);
    CHECK(msg->why == STRAIT_EAUTH);
    strait_msg_close(&msg);
}

/* Messages queued when a mesh closes still arrive. */
static void close_sends_what_is_queued(void **state) {
    (void)state;
    connect_nodes();
    for (uint32_t i = 0; i < 50; i++) {
        struct strait_msg *msg = message(&a, i, 60000);
        CHECK_OK(strait_mesh_send_wait(a.mesh, a.peer, 60000, &msg));
    }
    strait_mesh_close(&a.mesh);
    for (uint32_t i = 0; i < 50; i++) {
        struct strait_msg *msg = NULL;
        do {
            strait_msg_close(&msg);
            CHECK_OK(strait_mesh_receive(b.mesh, 60000, &msg));
        } while (msg->type < STRAIT_MSG_FIRST);
        CHECK(msg->step == i);
        strait_msg_close(&msg);
    }
}

#define ALL(scheme)                                                                               \
    ON(scheme, sends_in_both_directions_from_four_threads),                                       \
        ON(scheme, allocates_nothing_after_warm_up),                                              \
        ON(scheme, declines_when_full_and_sends_urgent_first), ON(scheme, rejects_bad_arguments), \
        ON(scheme, queue_limit_counts_bytes_and_messages),                                        \
        ON(scheme, redials_a_peer_that_returns), ON(scheme, does_not_redial_after_refusal),       \
        ON(scheme, drops_what_was_queued_for_a_lost_link), ON(scheme, close_sends_what_is_queued)

int main(void) {
    const struct CMUnitTest tests[] = {ALL("inproc"), ALL("tls")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
