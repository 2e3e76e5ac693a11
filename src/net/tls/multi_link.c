#include "net/tls/multi_link.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "net/tls/socket.h"

#include <stdio.h>
#include <string.h>

enum {
    PING_BYTES = 8,          // the sender's clock
    PONG_QUEUE_MAX = 64,     // a peer that floods us with beats gets no echo
    OUT_OF_ORDER_MAX = 65536 // how far a message may overtake others
};

void strait_multi_link_init(struct strait_link *link, int n_streams, uint64_t nonce) {
    struct strait_multi_link_list *all = link->transport->state;
    struct strait_multi_link *b = link->state;
    b->n_streams = n_streams;
    b->nonce = nonce;
    strait_emulate_init(&b->shaper, &link->emulate, strait_clock_ns());
    b->next = all->first;
    all->first = link;
}

static void pump_streams(struct strait_multi_link *b) {
    b->first_stream = b->n_streams > 0 ? (b->first_stream + 1) % b->n_streams : 0;
    for (int i = 0; i < b->n_streams; i++) {
        struct strait_conn *c = b->streams[(b->first_stream + i) % b->n_streams];
        if (c != NULL) strait_conn_pump(c);
    }
}

strait_err strait_multi_link_send(struct strait_link *link, struct strait_msg **msg) {
    struct strait_multi_link *b = link->state;
    const strait_transport_config *config = &link->transport->config;
    if (!b->is_open || b->is_closing)
        return STRAIT_FAIL(STRAIT_ECLOSED, "the link to '%s' is not open", link->peer_name);
    if ((*msg)->size > config->message_max)
        return STRAIT_FAIL(STRAIT_EINVAL, "message of %zu bytes, expected at most %zu",
                           (*msg)->size, config->message_max);
    if (strait_priority_queue_is_full(&b->out, *msg, config->queue_bytes)) {
        b->wants_writable = 1;
        return STRAIT_EAGAIN;
    }
    if ((*msg)->queued_ns == 0) (*msg)->queued_ns = strait_clock_ns();
    strait_priority_queue_push(&b->out, msg);
    pump_streams(b);
    return STRAIT_OK;
}

static void set_reason(struct strait_multi_link *b, strait_err why) {
    b->is_closing = 1;
    b->why = why;
    (void)snprintf(b->reason, sizeof b->reason, "%s",
                   why == STRAIT_OK ? "closed as asked" : strait_err_detail());
}

void strait_multi_link_close(struct strait_link *link, strait_err why) {
    struct strait_multi_link *b = link->state;
    if (b->is_closing) return;
    set_reason(b, why);
    const int is_flushing = why == STRAIT_OK && b->is_open;
    if (!is_flushing) strait_priority_queue_clear(&b->out);
    for (int i = 0; i < b->n_streams; i++) {
        if (b->streams[i] == NULL) continue;
        strait_err_note(__FILE__, __LINE__, "%s", b->reason);
        strait_conn_close(b->streams[i], why, is_flushing);
    }
}

void strait_multi_link_abort(struct strait_link *link, strait_err why) {
    struct strait_multi_link *b = link->state;
    if (b->is_closing) return;
    set_reason(b, why);
    for (int i = 0; i < b->n_streams; i++) {
        if (b->streams[i] == NULL) continue;
        strait_err_note(__FILE__, __LINE__, "%s", b->reason);
        strait_conn_abort(b->streams[i], why);
    }
}

void strait_multi_link_pause(struct strait_link *link, int is_paused) {
    struct strait_multi_link *b = link->state;
    if (b->is_paused == is_paused) return;
    b->is_paused = is_paused;
    for (int i = 0; i < b->n_streams; i++)
        if (b->streams[i] != NULL && !b->is_closing) strait_conn_pause(b->streams[i], is_paused);
}

static void add_stream(const struct strait_conn *c, strait_link_stats *out) {
    out->sent_bytes += c->sent_bytes;
    out->received_bytes += c->received_bytes;
}

void strait_multi_link_stats(struct strait_link *link, strait_link_stats *out) {
    const struct strait_multi_link *b = link->state;
    *out = b->stats;
    out->queued_bytes = b->out.n_bytes;
    for (int i = 0; i < b->n_streams; i++) {
        const struct strait_conn *c = b->streams[i];
        if (c == NULL) continue;
        add_stream(c, out);
        uv_os_fd_t fd = -1;
        if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0) strait_socket_measure(fd, out);
    }
    if (out->n_streams > 1) out->tcp_rtt_s /= out->n_streams;
}

/* ---- messages, in their order ---- */

/* Queues a sign of life, or the answer to one. Without memory there is none: the peer notices. */
static void queue_ping(struct strait_link *link, uint8_t type, uint64_t clock) {
    struct strait_multi_link *b = link->state;
    struct strait_msg *msg = NULL;
    if (strait_msg_open(link->transport->config.pool, type, PING_BYTES, &msg) != STRAIT_OK) return;
    strait_put_u64(msg->body, clock);
    msg->queued_ns = strait_clock_ns();
    strait_priority_queue_push(&b->out, &msg);
    pump_streams(b);
}

void strait_multi_link_ping(struct strait_link *link, int64_t now_ns) {
    struct strait_multi_link *b = link->state;
    b->pinged_ns = now_ns;
    b->is_ping_queued = 1;
    queue_ping(link, STRAIT_MSG_PING, (uint64_t)strait_clock_ns());
}

static strait_err deliver(struct strait_link *link, struct strait_msg **msg) {
    struct strait_transport *t = link->transport;
    struct strait_multi_link *b = link->state;
    struct strait_msg *m = *msg;
    if (m->type >= STRAIT_MSG_FIRST) {
        b->stats.received_payload += m->size;
        b->stats.received_messages++;
        m->queued_ns = strait_clock_ns();
        t->events->received(t->user, link, msg);
        return STRAIT_OK;
    }
    if ((m->type != STRAIT_MSG_PING && m->type != STRAIT_MSG_PONG) || m->size != PING_BYTES)
        return STRAIT_FAIL(STRAIT_EPROTO, "frame of type %d and %zu bytes makes no sense here",
                           m->type, m->size);
    if (m->type == STRAIT_MSG_PONG)
        strait_stats_learn_rtt(&b->stats, strait_clock_ns() - (int64_t)strait_get_u64(m->body));
    else if (b->out.n_messages < PONG_QUEUE_MAX)
        queue_ping(link, STRAIT_MSG_PONG, strait_get_u64(m->body));
    return STRAIT_OK;
}

/* Keeps a message that overtook others on another stream. */
static strait_err keep_out_of_order(struct strait_multi_link *b, struct strait_msg **msg,
                                    size_t limit) {
    const int p = (*msg)->priority;
    const uint32_t ahead = (*msg)->sequence - b->next_in[p];
    struct strait_msg **at = &b->out_of_order[p];
    while (*at != NULL && (*at)->sequence - b->next_in[p] < ahead)
        at = &(*at)->next;
    const int is_known = *at != NULL && (*at)->sequence == (*msg)->sequence;
    if (b->n_streams == 1 || ahead > OUT_OF_ORDER_MAX || is_known || b->out_of_order_bytes > limit)
        return STRAIT_FAIL(STRAIT_EPROTO, "frame number %u of priority %d, expected %u",
                           (*msg)->sequence, p, b->next_in[p]);
    b->out_of_order_bytes += (*msg)->size;
    (*msg)->next = *at;
    *at = *msg;
    *msg = NULL;
    return STRAIT_OK;
}

/* Delivers those of the early ones whose turn has come. */
static strait_err deliver_in_order(struct strait_link *link, int p) {
    struct strait_multi_link *b = link->state;
    while (b->out_of_order[p] != NULL && b->out_of_order[p]->sequence == b->next_in[p] &&
           !b->is_closing) {
        struct strait_msg *m = b->out_of_order[p];
        b->out_of_order[p] = m->next;
        b->out_of_order_bytes -= m->size;
        b->next_in[p]++;
        const strait_err err = deliver(link, &m);
        strait_msg_close(&m);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* ---- what the streams tell ---- */

static strait_err authenticated(struct strait_conn *c, const strait_fingerprint *peer,
                                strait_hello *out) {
    struct strait_transport *t = c->t;
    const strait_err err = strait_transport_authorize(t, c->link, peer, &c->emulate);
    memcpy(out->run, t->config.run, sizeof out->run);
    memcpy(out->name, t->config.name, sizeof out->name);
    out->n_streams = 1;
    if (err != STRAIT_OK || c->link == NULL) return err;
    const struct strait_multi_link *b = c->link->state;
    out->link = b->nonce;
    out->n_streams = (uint8_t)b->n_streams;
    for (int i = 0; i < b->n_streams; i++)
        if (b->streams[i] == c) out->stream = (uint8_t)i;
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

static struct strait_link *find_link(const struct strait_multi_link_list *all,
                                     const struct strait_conn *c, uint64_t nonce) {
    for (struct strait_link *link = all->first; link != NULL;) {
        const struct strait_multi_link *b = link->state;
        if (!link->is_dialled && !b->is_closing && b->nonce == nonce &&
            strait_fingerprint_equal(&link->peer, &c->peer))
            return link;
        link = b->next;
    }
    return NULL;
}

/* Makes an accepted stream part of the link it names, which it may be the first of. */
static strait_err join_link(struct strait_conn *c, const strait_hello *theirs) {
    struct strait_multi_link_list *all = c->t->state;
    const int most = c->t->config.max_streams;
    if (most > 0 && theirs->n_streams > most) // a link that never opens is none of those we count
        return STRAIT_FAIL(STRAIT_EPROTO, "'%s' comes with %d streams, but %d is the most here",
                           theirs->name, theirs->n_streams, most);
    struct strait_link *link = find_link(all, c, theirs->link);
    if (link == NULL) {
        STRAIT_TRY(strait_link_new(c->t, &link));
        link->peer = c->peer;
        memcpy(link->source_address, c->source_address, sizeof link->source_address);
        link->emulate = c->emulate;
        strait_multi_link_init(link, theirs->n_streams, theirs->link);
    }
    struct strait_multi_link *b = link->state;
    if (b->n_streams != theirs->n_streams || b->streams[theirs->stream] != NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "stream %d of '%s' came twice", theirs->stream,
                           theirs->name);
    remove_pending(all, c);
    b->streams[theirs->stream] = c;
    b->n_live++;
    strait_conn_attach(c, link, &b->shaper);
    return STRAIT_OK;
}

static strait_err hello_received(struct strait_conn *c, const strait_hello *theirs) {
    struct strait_transport *t = c->t;
    strait_hello ours = {.run = {0}};
    memcpy(ours.run, t->config.run, sizeof ours.run);
    memcpy(ours.name, t->config.name, sizeof ours.name);
    STRAIT_TRY(strait_hello_match(&ours, theirs));
    if (c->link == NULL) STRAIT_TRY(join_link(c, theirs));
    struct strait_link *link = c->link;
    struct strait_multi_link *b = link->state;
    link->peer = c->peer;
    memcpy(link->peer_name, theirs->name, sizeof link->peer_name);
    if (++b->n_ready < b->n_streams || b->is_closing) return STRAIT_OK;
    b->is_open = 1;
    t->events->opened(t->user, link);
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++) // what came before the last stream did
        STRAIT_TRY(deliver_in_order(link, p));
    return STRAIT_OK;
}

static struct strait_msg *next(struct strait_conn *c) {
    if (c->link == NULL) return NULL;
    struct strait_multi_link *b = c->link->state;
    if (!b->is_open) return NULL;
    struct strait_msg *msg = strait_priority_queue_pop(&b->out);
    if (msg == NULL) return NULL;
    msg->sequence = b->next_out[msg->priority]++;
    if (msg->type >= STRAIT_MSG_FIRST) {
        b->stats.sent_payload += msg->size;
        b->stats.sent_messages++;
    } else if (msg->type == STRAIT_MSG_PING) {
        b->is_ping_queued = 0;
    }
    return msg;
}

static strait_err received(struct strait_conn *c, struct strait_msg **msg) {
    struct strait_link *link = c->link;
    struct strait_multi_link *b = link->state;
    const int p = (*msg)->priority;
    if (!b->is_open || (*msg)->sequence != b->next_in[p])
        return keep_out_of_order(b, msg, 4 * link->transport->config.message_max);
    b->next_in[p]++;
    STRAIT_TRY(deliver(link, msg));
    return deliver_in_order(link, p);
}

static void closed(struct strait_conn *c, strait_err why) {
    if (c->link == NULL) {
        remove_pending(c->t->state, c);
        const int is_news = why != STRAIT_OK && why != STRAIT_EAGAIN; // EAGAIN: alone at a relay
        if (is_news) c->t->events->refused(c->t->user, why);
        return;
    }
    struct strait_multi_link *b = c->link->state;
    for (int i = 0; i < b->n_streams; i++)
        if (b->streams[i] == c) b->streams[i] = NULL;
    b->n_live--;
    add_stream(c, &b->stats);
    strait_multi_link_abort(c->link, why);
}

const struct strait_conn_events strait_multi_link_conn_events = {
    .authenticated = authenticated,
    .hello_received = hello_received,
    .next = next,
    .received = received,
    .closed = closed,
};
