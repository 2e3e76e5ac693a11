#include "contract/transport/transport_rig.h"

#include "base/clock.h"

#include <stdio.h>

static strait_err admit(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate) {
    const struct rig_node *node = user;
    if (node->admitted != NULL) *emulate = *node->admitted;
    if (node->trusted == NULL || strait_fingerprint_equal(node->trusted, peer)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EAUTH, "this key is not on the list");
}

static void refused(void *user, strait_err why) {
    struct rig_node *node = user;
    node->n_refused++;
    node->why_refused = why;
    (void)snprintf(node->reason_refused, sizeof node->reason_refused, "%.200s",
                   strait_err_detail());
}

static void opened(void *user, struct strait_link *link) {
    struct rig_node *node = user;
    CHECK(node->link == NULL || node->link == link);
    CHECK(node->n_closed == 0);
    node->link = link;
    node->n_opened++;
    if (node->on_open != NULL) node->on_open(node);
}

static void received(void *user, struct strait_link *link, struct strait_msg **msg) {
    struct rig_node *node = user;
    CHECK(link == node->link && node->n_opened == 1 && node->n_closed == 0);
    CHECK(node->n_got < RIG_ARRIVALS_MAX);
    node->steps[node->n_got++] = (*msg)->step;
    if (node->on_message != NULL) node->on_message(node, *msg);
    if (!node->must_keep) return;
    strait_msg_close(&node->kept);
    node->kept = *msg;
    *msg = NULL;
}

static void writable(void *user, struct strait_link *link) {
    struct rig_node *node = user;
    CHECK(link == node->link);
    node->n_writable++;
}

static void closed(void *user, struct strait_link *link, strait_err why) {
    struct rig_node *node = user;
    CHECK(node->link == NULL || link == node->link);
    node->link = NULL;
    node->n_closed++;
    node->why = why;
    (void)snprintf(node->reason, sizeof node->reason, "%s", strait_err_detail());
}

static const struct strait_transport_events events = {
    .admit = admit,
    .refused = refused,
    .opened = opened,
    .received = received,
    .writable = writable,
    .closed = closed,
};

void rig_open(struct rig *r, const char *scheme) {
    memset(r, 0, sizeof *r);
    r->scheme = scheme;
    CHECK_OK(strait_msg_pool_open(&r->pool));
    CHECK_OK(strait_inproc_network_open(&r->network));
    CHECK_OK(strait_identity_generate(&r->a.identity));
    CHECK_OK(strait_identity_generate(&r->b.identity));
    r->config = (strait_transport_config){
        .pool = r->pool, .network = r->network, .run = {1, 2, 3, 4, 5}, .linger_ms = 200};
}

static void start(struct rig *r, struct rig_node *node, const char *name) {
    strait_transport_config config = r->config;
    config.identity = node->identity;
    (void)snprintf(config.name, sizeof config.name, "%s", name);
    if (r->are_apart && node == &r->a) config.run[15] = 99;
    CHECK_OK(strait_transport_open(r->scheme, &events, node, &config, &node->t));
}

void rig_start(struct rig *r) {
    start(r, &r->a, "alice");
    start(r, &r->b, "bob");
    const char *where = strcmp(r->scheme, "inproc") == 0 ? "stage-1"
                        : strcmp(r->scheme, "mpi") == 0  ? "rank-0:0"
                                                         : "127.0.0.1:0";
    CHECK_OK(strait_transport_listen(r->b.t, where, r->b.address));
}

struct strait_link *rig_dial(struct rig *r) {
    const strait_dial_params params = {.expected = strait_identity_fingerprint(r->b.identity)};
    struct strait_link *link = NULL;
    CHECK_OK(strait_transport_dial(r->a.t, r->b.address, params, &link));
    return link;
}

void rig_connect(struct rig *r) {
    rig_start(r);
    (void)rig_dial(r);
    if (!rig_drive(r, rig_both_open, 60000))
        fail_msg("no link: '%s', '%s'", r->a.reason, r->b.reason_refused);
}

void rig_close(struct rig *r) {
    strait_transport_close(&r->a.t);
    strait_transport_close(&r->b.t);
    strait_msg_close(&r->a.kept);
    strait_msg_close(&r->b.kept);
    strait_identity_close(&r->a.identity);
    strait_identity_close(&r->b.identity);
    strait_inproc_network_close(&r->network);
    strait_msg_pool_close(&r->pool);
}

int rig_drive(struct rig *r, int (*done)(const struct rig *r), int timeout_ms) {
    const int64_t until = strait_clock_ns() + (int64_t)timeout_ms * 1000000;
    while (!done(r)) {
        const int64_t now = strait_clock_ns();
        if (r->seen_ns > 0 && now - r->seen_ns > r->longest_ns) r->longest_ns = now - r->seen_ns;
        r->seen_ns = now;
        if (r->a.t != NULL) CHECK_OK(r->a.t->ops->progress(r->a.t, 0));
        if (r->b.t != NULL) CHECK_OK(r->b.t->ops->progress(r->b.t, 0));
        if (strait_clock_ns() > until) return done(r);
    }
    return 1;
}

static int never(const struct rig *r) {
    (void)r;
    return 0;
}

void rig_rest(struct rig *r, int ms) {
    (void)rig_drive(r, never, ms);
}

int rig_both_open(const struct rig *r) {
    return r->a.n_opened == 1 && r->b.n_opened == 1;
}

int rig_both_closed(const struct rig *r) {
    return r->a.n_closed == 1 && r->b.n_closed == 1;
}

int rig_a_closed(const struct rig *r) {
    return r->a.n_closed > 0;
}

int rig_b_refused(const struct rig *r) {
    return r->b.n_refused > 0 && r->a.n_closed > 0;
}

static unsigned char pattern(uint32_t step, size_t i) {
    return (unsigned char)((step * 31 + i * 7 + (i >> 8)) & 255);
}

struct strait_msg *rig_message(struct rig *r, strait_priority priority, uint32_t step,
                               size_t size) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(r->pool, 20, size, &msg));
    msg->priority = (uint8_t)priority;
    msg->step = step;
    for (size_t i = 0; i < size; i++)
        msg->body[i] = pattern(step, i);
    return msg;
}

int rig_is_intact(const struct strait_msg *msg) {
    for (size_t i = 0; i < msg->size; i++)
        if (msg->body[i] != pattern(msg->step, i)) return 0;
    return 1;
}

static int a_has_one(const struct rig *r) {
    return r->a.n_got >= 1;
}

double rig_ping(struct rig *r) {
    const int64_t start = strait_clock_ns();
    struct strait_msg *msg = rig_message(r, STRAIT_PRIORITY_CONTROL, 0, 64);
    r->a.n_got = 0;
    CHECK_OK(strait_link_send(r->a.link, &msg));
    CHECK(rig_drive(r, a_has_one, 60000));
    return (double)(strait_clock_ns() - start) * 1e-9;
}

double rig_bulk(struct rig *r, int n, size_t bytes) {
    const int64_t start = strait_clock_ns();
    r->b.n_got = 0;
    for (int i = 0; i < n; i++) {
        struct strait_msg *msg = rig_message(r, STRAIT_PRIORITY_ACTIVATION, (uint32_t)i, bytes);
        while (strait_link_send(r->a.link, &msg) == STRAIT_EAGAIN)
            rig_rest(r, 1);
    }
    while (r->b.n_got < n && strait_clock_ns() - start < (int64_t)60 * 1000000000)
        rig_rest(r, 1);
    return (double)(strait_clock_ns() - start) * 1e-9;
}
