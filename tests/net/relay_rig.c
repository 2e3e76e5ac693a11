#include "relay_rig.h"

#include "net/core/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* ---- the relay ---- */

static void *run_relay(void *arg) {
    strait_relay_run(arg);
    return NULL;
}

void relay_rig_open(struct relay_rig *r, const strait_relay_config *config, const char *where) {
    *r = (struct relay_rig){.is_running = 1};
    CHECK_OK(strait_identity_random(r->token.bytes, sizeof r->token.bytes));
    CHECK_OK(strait_relay_open(config, &r->relay));
    CHECK_OK(strait_relay_listen(r->relay, where, r->where, sizeof r->where));
    CHECK_OK(strait_relay_address_print(r->where, &r->token, r->address, sizeof r->address));
    CHECK(pthread_create(&r->thread, NULL, run_relay, r->relay) == 0);
}

void relay_rig_stop(struct relay_rig *r, strait_relay_stats *out) {
    if (!r->is_running) return;
    strait_relay_stop(r->relay);
    CHECK(pthread_join(r->thread, NULL) == 0);
    r->is_running = 0;
    if (out != NULL) strait_relay_read_stats(r->relay, out);
    strait_relay_close(&r->relay);
}

/* ---- machines ---- */

static void open_node(struct relay_node *node, const char *name, int n_streams) {
    strait_mesh_config config = {.scheme = "tls"};
    config.transport = (strait_transport_config){.identity = node->identity,
                                                 .run = {7},
                                                 .n_streams = n_streams,
                                                 .linger_ms = 500,
                                                 .handshake_ms = 20000};
    (void)snprintf(config.transport.name, sizeof config.transport.name, "%s", name);
    CHECK_OK(strait_mesh_open(&config, &node->mesh));
}

void relay_rig_pair(struct relay_node *a, struct relay_node *b, const char *address_a,
                    const char *address_b, int n_streams) {
    char bound[STRAIT_ADDRESS_MAX];
    CHECK_OK(strait_identity_generate(&a->identity));
    CHECK_OK(strait_identity_generate(&b->identity));
    open_node(a, "alice", n_streams);
    open_node(b, "bob", n_streams);
    const strait_mesh_peer bob = {
        .name = "bob", .key = *strait_identity_fingerprint(b->identity), .address = address_a};
    const strait_mesh_peer alice = {.name = "alice",
                                    .key = *strait_identity_fingerprint(a->identity)};
    CHECK_OK(strait_mesh_add(b->mesh, &alice, &b->peer));
    CHECK_OK(strait_mesh_listen(b->mesh, address_b, bound));
    assert_string_equal(bound, address_b);
    CHECK_OK(strait_mesh_add(a->mesh, &bob, &a->peer));
}

void relay_node_close(struct relay_node *node) {
    strait_mesh_close(&node->mesh);
    strait_identity_close(&node->identity);
}

static unsigned char pattern(int k, size_t i) {
    return (unsigned char)((size_t)k * 31 + i * 7 + (i >> 8));
}

static size_t size_of(int k, size_t largest) {
    return (size_t)k * 7919 * (size_t)(k % 5 + 1) % (largest + 1);
}

static void send_one(struct relay_node *node, int k, size_t largest) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(node->mesh), 20, size_of(k, largest), &msg));
    msg->step = (uint32_t)k;
    msg->priority = STRAIT_PRIORITY_CONTROL;
    for (size_t i = 0; i < msg->size; i++)
        msg->body[i] = pattern(k, i);
    CHECK_OK(strait_mesh_send_wait(node->mesh, node->peer, 60000, &msg));
}

/* Receives the next message that is not an UP or DOWN notice. */
static void receive_one(struct relay_node *node, int k, size_t largest) {
    struct strait_msg *msg = NULL;
    do {
        strait_msg_close(&msg);
        CHECK_OK(strait_mesh_receive(node->mesh, 60000, &msg));
    } while (msg->type < STRAIT_MSG_FIRST);
    assert_int_equal(msg->step, k);
    assert_int_equal(msg->size, size_of(k, largest));
    for (size_t i = 0; i < msg->size; i++)
        CHECK(msg->body[i] == pattern(k, i));
    strait_msg_close(&msg);
}

void relay_rig_exchange(struct relay_node *a, struct relay_node *b, int n_messages,
                        size_t largest) {
    enum {
        AHEAD = 8 // messages in flight at once
    };
    for (int k = 0; k < n_messages + AHEAD; k++) {
        if (k < n_messages) {
            send_one(a, k, largest);
            send_one(b, k, largest);
        }
        if (k >= AHEAD) {
            receive_one(a, k - AHEAD, largest);
            receive_one(b, k - AHEAD, largest);
        }
    }
}

/* ---- plain sockets ---- */

void relay_rig_rest(int ms) {
    (void)nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

static struct sockaddr_in socket_address(const char *where) {
    char host[STRAIT_ADDRESS_MAX];
    int port = 0;
    CHECK_OK(strait_address_split(where, host, &port));
    struct sockaddr_in out = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, host, &out.sin_addr) == 1);
    return out;
}

int relay_rig_connect(const char *where, int from) {
    const struct sockaddr_in to = socket_address(where);
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr = {.s_addr = htonl(0x7f000000u + (uint32_t)from)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&own, sizeof own) == 0 &&
        connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

int relay_rig_request(const char *where, int from, strait_relay_role role,
                      const strait_relay_token *token) {
    unsigned char request[STRAIT_RELAY_REQUEST];
    const int fd = relay_rig_connect(where, from);
    CHECK(fd >= 0);
    strait_relay_request_pack(role, token, request);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    return fd;
}

strait_err relay_rig_reply(int fd) {
    unsigned char reply[STRAIT_RELAY_REPLY];
    const struct timeval limit = {.tv_sec = 60};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    ssize_t n = 0;
    do
        n = recv(fd, reply, sizeof reply, MSG_WAITALL);
    while (n < 0 && errno == EINTR); // sanitizers may interrupt system calls
    if (n != sizeof reply) return STRAIT_FAIL(STRAIT_EINVAL, "closed without a reply");
    return strait_relay_reply_unpack(reply);
}

void relay_rig_settle(const char *where) {
    static const unsigned char request[STRAIT_RELAY_REQUEST] = "GET / HTTP/1.1\r\n\r\n";
    const int fd = relay_rig_connect(where, 1);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    CHECK_FAILS(relay_rig_reply(fd), STRAIT_EPROTO, "rejected our request");
    (void)close(fd);
}

/* ---- the proxy that corrupts ---- */

/* Forwards available bytes; returns 0 when the connection is closed. */
static int forward(struct relay_corrupter *m, int from, int to, int64_t *n_passed) {
    unsigned char bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n <= 0) return 0;
    const int64_t at = n_passed != NULL ? m->corrupt_at - *n_passed : -1;
    if (at >= 0 && at < n) {
        bytes[at] ^= 0x10;
        m->n_corrupted++;
    }
    if (n_passed != NULL) *n_passed += n;
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void corrupt_connection(struct relay_corrupter *m, int fd) {
    const int out = relay_rig_connect(m->target, 1);
    int64_t n_passed = 0;
    int is_open = out >= 0;
    while (is_open && !m->is_over) {
        struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = out, .events = POLLIN}};
        (void)poll(both, 2, 20);
        if (both[0].revents != 0) is_open = forward(m, fd, out, &n_passed);
        if (is_open && both[1].revents != 0) is_open = forward(m, out, fd, NULL);
    }
    if (out >= 0) (void)close(out);
    (void)close(fd);
}

static void *run_corrupter(void *arg) {
    struct relay_corrupter *m = arg;
    while (!m->is_over) {
        struct pollfd one = {.fd = m->listener, .events = POLLIN};
        if (poll(&one, 1, 20) <= 0) continue;
        const int fd = accept(m->listener, NULL, NULL);
        if (fd >= 0) corrupt_connection(m, fd);
        m->corrupt_at = -1;
    }
    return NULL;
}

void relay_corrupter_open(struct relay_corrupter *m, const char *target, int64_t corrupt_at) {
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof own;
    *m = (struct relay_corrupter){.corrupt_at = corrupt_at};
    (void)snprintf(m->target, sizeof m->target, "%s", target);
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(m->listener, (struct sockaddr *)&own, size) == 0 && listen(m->listener, 16) == 0);
    CHECK(getsockname(m->listener, (struct sockaddr *)&own, &size) == 0);
    (void)snprintf(m->where, sizeof m->where, "127.0.0.1:%d", ntohs(own.sin_port));
    CHECK(pthread_create(&m->thread, NULL, run_corrupter, m) == 0);
}

void relay_corrupter_close(struct relay_corrupter *m) {
    m->is_over = 1;
    CHECK(pthread_join(m->thread, NULL) == 0);
    (void)close(m->listener);
}
