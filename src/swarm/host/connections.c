/* host_desk.c - the links of a host: who may come in, and what waits on either side.
 *
 * What the transport tells is only put down here; host_hear.c looks at it afterwards. So nothing
 * that guests say happens in the middle of something else, and links live on while the host waits
 * for the store of record. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    NEWCOMERS_MAX = 64,       // links that have not said why they came
    ANSWERS = 4,              // messages it may send for each that is sent to it
    WORDS_PER_S = 20,         // and without
    WORDS_MAX = 1000,         // at once
    IN_MAX = 4 * 1024 * 1024, // bytes of one that may wait for us: then it has to
    IN_EARLY = 64 * 1024      // before it has joined
};

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
        strait_host_dismiss(h, connection, STRAIT_ETIMEDOUT, "it takes nothing that is sent to it");
        return;
    }
    strait_priority_queue_push(&connection->out, msg);
    if (connection->allowance < WORDS_MAX) connection->allowance += ANSWERS;
    drain(connection);
}

void strait_host_dismiss(struct host *h, struct connection *connection, strait_err why,
                         const char *words) {
    (void)h;
    if (connection->link == NULL || connection->must_close) return;
    connection->must_close = 1;
    strait_err_note(__FILE__, __LINE__, "%s", words);
    strait_link_close(connection->link, why);
}

/* ---- events of the transport ---- */

static strait_err admit(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate) {
    (void)user;
    (void)peer;
    (void)emulate;
    return STRAIT_OK; // the token decides, with the first message
}

static void refused(void *user, strait_err why) {
    struct host *h = user;
    (void)why;
    h->links.n_refused++;
}

static int is_newcomer(const struct connection *connection) {
    return connection->link != NULL && connection->worker < 0 && !connection->must_close;
}

static int count_alike(const struct host *h, const struct connection *connection) {
    int n = 0;
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++)
        n += is_newcomer(&h->links.items[i]) &&
             memcmp(h->links.items[i].link->source_address, connection->link->source_address,
                    sizeof connection->link->source_address) == 0;
    return n;
}

/* Where too many have not said why they came, the oldest from the address with most of them has to
 * go. */
static void make_room(struct host *h) {
    struct connection *worst = NULL;
    int n = 0;
    int n_alike = 0;
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->links.items[i];
        if (!is_newcomer(connection)) continue;
        n++;
        const int alike = count_alike(h, connection);
        const int is_younger = worst != NULL && connection->since_ns >= worst->since_ns;
        if (alike < n_alike || (alike == n_alike && is_younger)) continue;
        worst = connection;
        n_alike = alike;
    }
    if (n <= NEWCOMERS_MAX || worst == NULL) return;
    h->links.n_refused++;
    strait_host_dismiss(h, worst, STRAIT_ECLOSED, "too many came at once: try again");
}

static void opened(void *user, struct strait_link *link) {
    struct host *h = user;
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->links.items[i];
        if (connection->link != NULL || connection->has_ended) continue;
        const int64_t now = strait_clock_ns();
        *connection = (struct connection){
            .link = link, .worker = -1, .since_ns = now, .heard_ns = now, .allowance = WORDS_MAX};
        link->user = connection;
        make_room(h);
        return;
    }
    h->links.n_refused++;
    link->user = NULL;
    strait_link_close(link, STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator has too many guests"));
}

/* Its place is not free before what it said has been heard. */
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

/* Pieces of an image that was ordered are as many as they are; the rest is answers, and pulses. */
static int may_talk(const struct host *h, struct connection *connection,
                    const struct strait_msg *msg) {
    const int64_t now = strait_clock_ns();
    const int is_saving = h->work.kind == STRAIT_COMMAND_SEND_SNAPSHOT;
    if (msg->type == STRAIT_MSG_SNAPSHOT && is_saving) return 1;
    connection->allowance += (double)(now - connection->heard_ns) * 1e-9 * WORDS_PER_S;
    connection->heard_ns = now;
    if (connection->allowance > WORDS_MAX) connection->allowance = WORDS_MAX;
    connection->allowance -= 1.0;
    return connection->allowance >= 0.0;
}

static void received(void *user, struct strait_link *link, struct strait_msg **msg) {
    struct host *h = user;
    struct connection *connection = link->user;
    if (connection == NULL || connection->must_close) return;
    if (!may_talk(h, connection, *msg)) {
        strait_host_note(h, "'%s' is sent away: it talks too much", link->peer_name);
        strait_host_dismiss(h, connection, STRAIT_EPROTO, "it talks too much");
        return;
    }
    strait_priority_queue_push(&connection->in, msg);
    const size_t most = connection->worker < 0 ? IN_EARLY : IN_MAX;
    if (connection->in.n_bytes <= most || connection->is_held) return;
    connection->is_held = 1;
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
