/* connections.c - the links of a host: which are accepted, and the queues in both directions.
 *
 * Events of the transport are only queued here; dispatch.c handles them afterwards. A message of a
 * worker therefore never takes effect in the middle of another operation, and links stay alive
 * while the host waits for the metastore. */
#include "base/alloc.h"
#include "base/clock.h"
#include "stage/boundary/boundary.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    NEWCOMERS_MAX = 64,       // links that have not asked to join
    ANSWERS = 4,              // messages a peer may send for each message we send it
    MESSAGES_PER_S = 20,      // messages it may send besides: heartbeats
    BURST_MAX = 1000,         // messages it may send at once
    IN_MAX = 4 * 1024 * 1024, // received bytes of one link that may be queued before it is paused
    IN_EARLY = 64 * 1024,     // the same before it has joined, and its largest message then
    TRIM_MS = 5000,           // between two times that unused memory is freed
    REFUSAL_MS = 10000        // between two log lines about refused connections
};

/* A worker that joins, or reconnects before its old link has closed, finds a slot however many
 * there are. */
_Static_assert(STRAIT_HOST_CONNECTIONS >= STRAIT_SWARM_WORKERS + 2 * NEWCOMERS_MAX,
               "workers could not join although there are slots for them");

struct connection *strait_host_connection(struct host *h, int worker) {
    if (worker < 0 || h->links.of_worker[worker] < 0) return NULL;
    struct connection *connection = &h->links.items[h->links.of_worker[worker]];
    return connection->link != NULL && !connection->must_close ? connection : NULL;
}

/* ---- sending ---- */

static void drain(struct connection *connection) {
    while (connection->out.n_messages > 0) {
        struct strait_msg *msg = strait_priority_queue_pop(&connection->out);
        const strait_err err = strait_link_send(connection->link, &msg);
        if (msg == NULL) continue;
        if (err == STRAIT_EAGAIN)
            strait_priority_queue_push_front(&connection->out, &msg);
        else
            strait_msg_close(&msg);
        return;
    }
}

void strait_host_send(struct host *h, struct connection *connection, struct strait_msg **msg) {
    if (connection == NULL || connection->link == NULL || connection->must_close) {
        strait_msg_close(msg);
        return;
    }
    if (connection->out.n_bytes + (*msg)->size > STRAIT_HOST_OUT_MAX) {
        strait_msg_close(msg);
        strait_host_disconnect(h, connection, STRAIT_ETIMEDOUT,
                               "send queue full: the worker has stopped reading");
        return;
    }
    strait_priority_queue_push(&connection->out, msg);
    if (connection->allowance < BURST_MAX) connection->allowance += ANSWERS;
    drain(connection);
}

void strait_host_disconnect(struct host *h, struct connection *connection, strait_err why,
                            const char *reason) {
    (void)h;
    if (connection->link == NULL || connection->must_close) return;
    connection->must_close = 1;
    strait_err_note(__FILE__, __LINE__, "%s", reason);
    strait_link_close(connection->link, why);
}

void strait_host_trim_memory(struct host *h, int64_t now_ns) {
    if (now_ns - h->clock.trim_ns < TRIM_MS * INT64_C(1000000)) return;
    h->clock.trim_ns = now_ns;
    strait_msg_pool_trim(h->pool);
    if (h->links.n_refused != h->links.n_trimmed) strait_alloc_trim();
    h->links.n_trimmed = h->links.n_refused;
}

/* ---- events of the transport ---- */

static strait_err admit(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate) {
    (void)user;
    (void)peer;
    (void)emulate;
    return STRAIT_OK; // whether it may join depends on the token in its first message
}

static void refused(void *user, strait_err why) {
    struct host *h = user;
    const int64_t now = strait_clock_ns();
    h->links.n_refused++;
    /* Only protocol errors are logged: the operator can install the same release everywhere. Anyone
     * can connect, so the number of lines is limited. */
    if (why != STRAIT_EPROTO ||
        (h->links.refusal_ns != 0 && now - h->links.refusal_ns < REFUSAL_MS * INT64_C(1000000)))
        return;
    h->links.refusal_ns = now;
    strait_host_note(h, "refused a connection: %s", strait_err_detail());
}

static int is_newcomer(const struct connection *connection) {
    return connection->link != NULL && connection->worker < 0 && !connection->must_close;
}

/* Returns how many newcomers connected from the same address as `connection`. */
static int count_from_address(const struct host *h, const struct connection *connection) {
    int n = 0;
    for (int i = 0; i < h->links.n_items; i++)
        n += is_newcomer(&h->links.items[i]) &&
             memcmp(h->links.items[i].link->source_address, connection->link->source_address,
                    sizeof connection->link->source_address) == 0;
    return n;
}

/* When too many links have not asked to join, closes the oldest one from the address that has most
 * of them: a flood from one address then displaces itself. */
static void limit_newcomers(struct host *h) {
    struct connection *worst = NULL;
    int n = 0;
    int n_worst = 0; // newcomers from its address
    for (int i = 0; i < h->links.n_items; i++) {
        struct connection *connection = &h->links.items[i];
        if (!is_newcomer(connection)) continue;
        n++;
        const int n_from = count_from_address(h, connection);
        const int is_younger = worst != NULL && connection->opened_ns >= worst->opened_ns;
        if (n_from < n_worst || (n_from == n_worst && is_younger)) continue;
        worst = connection;
        n_worst = n_from;
    }
    if (n <= NEWCOMERS_MAX || worst == NULL) return;
    h->links.n_refused++;
    strait_host_disconnect(h, worst, STRAIT_ECLOSED,
                           "too many connections that have not joined: try again later");
}

static void opened(void *user, struct strait_link *link) {
    struct host *h = user;
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->links.items[i];
        if (connection->link != NULL || connection->has_ended) continue;
        const int64_t now = strait_clock_ns();
        *connection = (struct connection){.link = link,
                                          .worker = -1,
                                          .opened_ns = now,
                                          .received_ns = now,
                                          .allowance = BURST_MAX};
        link->user = connection;
        if (i >= h->links.n_items) h->links.n_items = i + 1;
        link->message_max = IN_EARLY;
        limit_newcomers(h);
        return;
    }
    h->links.n_refused++;
    link->user = NULL;
    strait_host_make_slot(h, link);
    strait_link_close(link,
                      STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator has too many connections"));
}

/* The slot is freed later, when all messages of the link have been handled. */
static void closed(void *user, struct strait_link *link, strait_err why) {
    struct connection *connection = link->user;
    (void)user;
    (void)why;
    if (connection == NULL) return;
    strait_priority_queue_clear(&connection->out);
    connection->link = NULL;
    connection->has_ended = 1;
}

static void writable(void *user, struct strait_link *link) {
    (void)user;
    if (link->user != NULL) drain(link->user);
}

/* The rate limit of a connection. What a checkpoint or an audit asked for is exempt: there is as
 * much as it takes. Everything else is a reply or a heartbeat. */
static int is_within_rate(struct host *h, struct connection *connection,
                          const struct strait_msg *msg) {
    const int64_t now = strait_clock_ns();
    const int is_saving = h->work.kind == STRAIT_COMMAND_SEND_SNAPSHOT;
    const int is_given = msg->type == STRAIT_MSG_SNAPSHOT || msg->type == STRAIT_MSG_CROSSING;
    if (msg->type == STRAIT_MSG_SNAPSHOT && is_saving) return 1;
    if (is_given && strait_host_audit_expects(h, connection, msg)) return 1;
    connection->allowance += (double)(now - connection->received_ns) * 1e-9 * MESSAGES_PER_S;
    connection->received_ns = now;
    if (connection->allowance > BURST_MAX) connection->allowance = BURST_MAX;
    connection->allowance -= 1.0;
    return connection->allowance >= 0.0;
}

static void received(void *user, struct strait_link *link, struct strait_msg **msg) {
    struct host *h = user;
    struct connection *connection = link->user;
    if (connection == NULL || connection->must_close) return;
    if (!is_within_rate(h, connection, *msg)) {
        strait_host_note_stranger(h, "'%s' is disconnected: message rate limit exceeded",
                                  link->peer_name);
        strait_host_disconnect(h, connection, STRAIT_EPROTO, "message rate limit exceeded");
        return;
    }
    strait_priority_queue_push(&connection->in, msg);
    const size_t most = connection->worker < 0 ? IN_EARLY : IN_MAX;
    if (connection->in.n_bytes <= most || connection->is_paused) return;
    connection->is_paused = 1;
    h->t->ops->pause(link, 1);
}

const struct strait_transport_events strait_host_connections = {
    .admit = admit,
    .refused = refused,
    .opened = opened,
    .received = received,
    .writable = writable,
    .closed = closed,
};
