/* multi_link.c - one link: sending, reordering, keep-alives, and the events of its streams. */
#include "net/tls/multi_link.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "net/tls/socket.h"

#include <stdio.h>
#include <string.h>

enum {
    PING_BYTES = 8,     // the sender's clock, which the PONG returns
    PONG_QUEUE_MAX = 64 // a peer that floods us with PINGs gets no more PONGs
};

void strait_multi_link_init(struct strait_link *link, int n_streams, uint64_t nonce) {
    struct strait_multi_link_list *all = link->transport->state;
    struct strait_multi_link *ml = link->state;
    ml->n_streams = n_streams;
    ml->nonce = nonce;
    strait_emulate_init(&ml->shaper, &link->emulate, &link->transport->home, strait_clock_ns());
    ml->next = all->first;
    all->first = link;
}

/* Offers queued messages to the streams, a different one first each time, so that all are used. */
static void pump_streams(struct strait_multi_link *ml) {
    ml->first_stream = ml->n_streams > 0 ? (ml->first_stream + 1) % ml->n_streams : 0;
    for (int i = 0; i < ml->n_streams; i++) {
        struct strait_conn *c = ml->streams[(ml->first_stream + i) % ml->n_streams];
        if (c != NULL) strait_conn_pump(c);
    }
}

strait_err strait_multi_link_send(struct strait_link *link, struct strait_msg **msg) {
    struct strait_multi_link *ml = link->state;
    const strait_err err = strait_link_queue(link, ml->is_open && !ml->is_closing, &ml->out, msg);
    if (err == STRAIT_EAGAIN) ml->wants_writable = 1;
    if (err != STRAIT_OK) return err;
    pump_streams(ml);
    return STRAIT_OK;
}

/* The callers return early when the link is closing, so the first reason is kept. */
static void set_reason(struct strait_multi_link *ml, strait_err why) {
    ml->is_closing = 1;
    ml->why = why;
    (void)snprintf(ml->reason, sizeof ml->reason, "%s",
                   why == STRAIT_OK ? "closed by this program" : strait_err_detail());
}

void strait_multi_link_close(struct strait_link *link, strait_err why) {
    struct strait_multi_link *ml = link->state;
    if (ml->is_closing) return;
    set_reason(ml, why);
    const int is_flushing = why == STRAIT_OK && ml->is_open;
    if (!is_flushing) strait_priority_queue_clear(&ml->out);
    for (int i = 0; i < ml->n_streams; i++) {
        if (ml->streams[i] == NULL) continue;
        strait_err_note(__FILE__, __LINE__, "%s", ml->reason);
        strait_conn_close(ml->streams[i], why, is_flushing);
    }
}

void strait_multi_link_abort(struct strait_link *link, strait_err why) {
    struct strait_multi_link *ml = link->state;
    if (ml->is_closing) return;
    set_reason(ml, why);
    for (int i = 0; i < ml->n_streams; i++) {
        if (ml->streams[i] == NULL) continue;
        strait_err_note(__FILE__, __LINE__, "%s", ml->reason);
        strait_conn_abort(ml->streams[i], why);
    }
}

void strait_multi_link_pause(struct strait_link *link, int is_paused) {
    struct strait_multi_link *ml = link->state;
    if (ml->is_paused == is_paused) return;
    ml->is_paused = is_paused;
    for (int i = 0; i < ml->n_streams; i++)
        if (ml->streams[i] != NULL && !ml->is_closing && ml->held[i] == NULL)
            strait_conn_pause(ml->streams[i], is_paused);
}

/* Bytes of the body of a message that is still arriving. */
static uint64_t partial_bytes(const struct strait_conn *c) {
    const struct strait_msg *msg = c->reader.msg;
    return msg != NULL && msg->type >= STRAIT_MSG_FIRST ? c->reader.filled : 0;
}

static void add_stream(const struct strait_conn *c, strait_link_stats *out) {
    out->sent_bytes += c->sent_bytes;
    out->received_bytes += c->received_bytes;
}

void strait_multi_link_stats(struct strait_link *link, strait_link_stats *out) {
    const struct strait_multi_link *ml = link->state;
    *out = ml->stats;
    out->queued_bytes = ml->out.n_bytes;
    for (int i = 0; i < ml->n_streams; i++) {
        const struct strait_conn *c = ml->streams[i];
        if (c == NULL) continue;
        add_stream(c, out);
        out->received_partial += partial_bytes(c);
        uv_os_fd_t fd = -1;
        if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0) strait_socket_measure(fd, out);
    }
    if (out->n_streams > 1) out->tcp_rtt_s /= out->n_streams;
}

/* ---- messages and their order ---- */

/* Queues a PING or PONG. Without memory none is sent; if that lasts, the peer's timeout notices. */
static void queue_ping(struct strait_link *link, uint8_t type, uint64_t clock) {
    struct strait_multi_link *ml = link->state;
    struct strait_msg *msg = NULL;
    if (strait_msg_open(link->transport->config.pool, type, PING_BYTES, &msg) != STRAIT_OK) return;
    strait_put_u64(msg->body, clock);
    msg->queued_ns = strait_clock_ns();
    strait_priority_queue_push(&ml->out, &msg);
    pump_streams(ml);
}

void strait_multi_link_ping(struct strait_link *link, int64_t now_ns) {
    struct strait_multi_link *ml = link->state;
    ml->pinged_ns = now_ns;
    ml->is_ping_queued = 1;
    queue_ping(link, STRAIT_MSG_PING, (uint64_t)strait_clock_ns());
}

/* Delivers a message whose turn has come; answers PINGs and measures PONGs. */
static strait_err deliver(struct strait_link *link, struct strait_msg **msg) {
    struct strait_transport *t = link->transport;
    struct strait_multi_link *ml = link->state;
    struct strait_msg *m = *msg;
    if (m->type >= STRAIT_MSG_FIRST) {
        ml->stats.received_payload += m->size;
        ml->stats.received_messages++;
        m->queued_ns = strait_clock_ns(); // on receipt: the time of arrival
        t->events->received(t->user, link, msg);
        return STRAIT_OK;
    }
    if ((m->type != STRAIT_MSG_PING && m->type != STRAIT_MSG_PONG) || m->size != PING_BYTES)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "unexpected frame of type %d with %zu bytes on an open link", m->type,
                           m->size);
    if (m->type == STRAIT_MSG_PONG)
        strait_stats_add_rtt(&ml->stats, strait_clock_ns() - (int64_t)strait_get_u64(m->body));
    else if (ml->out.n_messages < PONG_QUEUE_MAX)
        queue_ping(link, STRAIT_MSG_PONG, strait_get_u64(m->body));
    return STRAIT_OK;
}

/* Delivers messages whose turn has come. */
static strait_err deliver_in_order(struct strait_link *link, int p) {
    struct strait_multi_link *ml = link->state;
    while (!ml->is_closing) {
        struct strait_msg *m = strait_reorder_take(&ml->in, p);
        if (m == NULL) return STRAIT_OK;
        const strait_err err = deliver(link, &m);
        strait_msg_close(&m);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Takes a message of a stream in. STRAIT_EAGAIN: it is too far ahead of the others. */
static strait_err take_in(struct strait_link *link, struct strait_msg **msg) {
    struct strait_multi_link *ml = link->state;
    const int p = (*msg)->priority;
    if (ml->n_streams == 1 && (*msg)->sequence != ml->in.next[p]) // nothing can overtake there
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "frame with sequence number %u of priority %d, expected %u",
                           (*msg)->sequence, p, ml->in.next[p]);
    STRAIT_TRY(strait_reorder_put(&ml->in, 4 * link->transport->config.message_max, msg));
    return ml->is_open ? deliver_in_order(link, p) : STRAIT_OK;
}

/* Keeps a message that is too far ahead and stops reading its stream, until the others have caught
 * up. They always can: of all messages that were not delivered, the one sent first has its turn,
 * and it is at the head of its stream. */
static void hold(struct strait_multi_link *ml, struct strait_conn *c, struct strait_msg **msg) {
    for (int i = 0; i < ml->n_streams; i++) {
        if (ml->streams[i] != c) continue;
        ml->held[i] = *msg;
        ml->n_held++;
        *msg = NULL;
    }
    strait_conn_pause(c, 1);
}

int strait_multi_link_release(struct strait_link *link) {
    struct strait_multi_link *ml = link->state;
    int n_released = 0;
    for (int i = 0; i < ml->n_streams && ml->n_held > 0 && !ml->is_closing; i++) {
        if (ml->held[i] == NULL || ml->streams[i] == NULL) continue;
        const strait_err err = take_in(link, &ml->held[i]);
        if (err == STRAIT_EAGAIN) continue;
        strait_msg_close(&ml->held[i]);
        ml->n_held--;
        n_released++;
        if (err != STRAIT_OK)
            strait_conn_close(ml->streams[i], err, 0);
        else if (!ml->is_paused)
            strait_conn_pause(ml->streams[i], 0);
    }
    return n_released;
}

/* ---- events of the streams ---- */

/* Checks the peer's key and fills in our HELLO, which tells the listening side the link and stream.
 */
static strait_err authenticated(struct strait_conn *c, const strait_fingerprint *peer,
                                strait_hello *out) {
    struct strait_transport *t = c->t;
    const strait_err err = strait_transport_authorize(t, c->link, peer, &c->emulate);
    memcpy(out->run, t->config.run, sizeof out->run);
    memcpy(out->name, t->config.name, sizeof out->name);
    out->n_streams = 1;
    if (err != STRAIT_OK || c->link == NULL) return err;
    const struct strait_multi_link *ml = c->link->state;
    out->link = ml->nonce;
    out->n_streams = (uint8_t)ml->n_streams;
    for (int i = 0; i < ml->n_streams; i++)
        if (ml->streams[i] == c) out->stream = (uint8_t)i;
    return STRAIT_OK;
}

static void remove_pending(struct strait_multi_link_list *all, struct strait_conn *c) {
    if (c->source != NULL) strait_rate_limiter_release(c->source);
    c->source = NULL;
    for (struct strait_conn **at = &all->pending; *at != NULL; at = &(*at)->next) {
        if (*at != c) continue;
        *at = c->next;
        all->n_pending--;
        return;
    }
}

void strait_multi_link_list_add_pending(struct strait_multi_link_list *all, struct strait_conn *c) {
    c->next = all->pending;
    all->pending = c;
    all->n_pending++;
}

/* Finds the accepted link that a stream belongs to. */
static struct strait_link *find_link(const struct strait_multi_link_list *all,
                                     const struct strait_conn *c, uint64_t nonce) {
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *ml = link->state;
        if (!link->is_dialled && !ml->is_closing && ml->nonce == nonce &&
            strait_fingerprint_equal(&link->peer, &c->peer))
            return link;
        link = ml->next;
    }
    return NULL;
}

/* A peer dials one link at a time. An older one that is still incomplete is of an attempt that
 * failed, or is meant to stay so: its streams count towards no limit of connections, and what
 * arrives on them waits in memory for the missing one. */
static void drop_incomplete(const struct strait_multi_link_list *all, const struct strait_conn *c) {
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *ml = link->state;
        struct strait_link *after = ml->next;
        if (!link->is_dialled && !ml->is_open && strait_fingerprint_equal(&link->peer, &c->peer))
            strait_multi_link_abort(
                link,
                STRAIT_FAIL(STRAIT_ECLOSED, "replaced by a newer connection of the same peer"));
        link = after;
    }
}

/* Attaches an accepted stream to the link that its HELLO names; the first stream creates the link.
 * The key is compared too, so that a guessed nonce does not let a stranger into another peer's
 * link. */
static strait_err join_link(struct strait_conn *c, const strait_hello *theirs) {
    struct strait_multi_link_list *all = c->t->state;
    const int most = c->t->config.max_streams;
    if (most > 0 && theirs->n_streams > most) // incomplete links would escape the connection limits
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "'%s' wants %d streams, this program accepts at most %d: set "
                           "link.streams to that or less",
                           theirs->name, theirs->n_streams, most);
    struct strait_link *link = find_link(all, c, theirs->link);
    if (link == NULL) {
        drop_incomplete(all, c);
        STRAIT_TRY(strait_link_new(c->t, &link));
        link->peer = c->peer;
        memcpy(link->source_address, c->source_address, sizeof link->source_address);
        memcpy(link->address, c->remote, sizeof link->address);
        link->emulate = c->emulate;
        strait_multi_link_init(link, theirs->n_streams, theirs->link);
    }
    struct strait_multi_link *ml = link->state;
    if (ml->n_streams != theirs->n_streams || ml->streams[theirs->stream] != NULL)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "'%s' sent stream %d twice, or other numbers of streams for one link",
                           theirs->name, theirs->stream);
    remove_pending(all, c);
    ml->streams[theirs->stream] = c;
    ml->n_live++;
    strait_conn_attach(c, link, &ml->shaper);
    return STRAIT_OK;
}

/* The peer belongs to our run: attaches the stream; the last stream opens the link. */
static strait_err hello_received(struct strait_conn *c, const strait_hello *theirs) {
    struct strait_transport *t = c->t;
    strait_hello ours = {.run = {0}};
    memcpy(ours.run, t->config.run, sizeof ours.run);
    memcpy(ours.name, t->config.name, sizeof ours.name);
    STRAIT_TRY(strait_hello_match(&ours, theirs));
    if (c->link == NULL) STRAIT_TRY(join_link(c, theirs));
    struct strait_link *link = c->link;
    struct strait_multi_link *ml = link->state;
    link->peer = c->peer;
    memcpy(link->peer_name, theirs->name, sizeof link->peer_name);
    memcpy(link->remote, c->remote, sizeof link->remote);
    if (++ml->n_ready < ml->n_streams || ml->is_closing) return STRAIT_OK;
    ml->is_open = 1;
    t->events->opened(t->user, link);
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++) // arrived before the last stream was ready
        STRAIT_TRY(deliver_in_order(link, p));
    return STRAIT_OK;
}

/* Called by a stream that has capacity: the message is chosen only now, so the most urgent wins. */
static struct strait_msg *next(struct strait_conn *c) {
    if (c->link == NULL) return NULL;
    struct strait_multi_link *ml = c->link->state;
    if (!ml->is_open) return NULL;
    struct strait_msg *msg = strait_priority_queue_pop(&ml->out);
    if (msg == NULL) return NULL;
    msg->sequence = ml->next_out[msg->priority]++; // in the order in which streams take messages
    if (msg->type >= STRAIT_MSG_FIRST) {
        ml->stats.sent_payload += msg->size;
        ml->stats.sent_messages++;
    } else if (msg->type == STRAIT_MSG_PING) {
        ml->is_ping_queued = 0;
    }
    return msg;
}

static strait_err received(struct strait_conn *c, struct strait_msg **msg) {
    const strait_err err = take_in(c->link, msg);
    if (err != STRAIT_EAGAIN) return err;
    hold(c->link->state, c, msg);
    return STRAIT_OK;
}

/* Puts the address and key of a stream without a link before the error detail. */
static void prefix_error(const struct strait_conn *c) {
    char peer[STRAIT_PEER_TEXT];
    strait_peer_describe(c->remote, c->has_peer ? &c->peer : NULL, peer);
    strait_err_prefix("%s", peer);
}

static void closed(struct strait_conn *c, strait_err why) {
    if (c->link == NULL) {
        remove_pending(c->t->state, c);
        /* EAGAIN: no peer came to the relay, which is not worth reporting. */
        if (why == STRAIT_OK || why == STRAIT_EAGAIN) return;
        prefix_error(c);
        c->t->events->refused(c->t->user, why);
        return;
    }
    struct strait_multi_link *ml = c->link->state;
    for (int i = 0; i < ml->n_streams; i++)
        if (ml->streams[i] == c) ml->streams[i] = NULL;
    ml->n_live--;
    add_stream(c, &ml->stats); // keep its counters
    strait_multi_link_abort(c->link, why);
}

const struct strait_conn_events strait_multi_link_conn_events = {
    .authenticated = authenticated,
    .hello_received = hello_received,
    .next = next,
    .received = received,
    .closed = closed,
};
