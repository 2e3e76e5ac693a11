/* envelope_transport.c - links that exchange envelopes: whole messages go from endpoint to
 * endpoint, delayed by the emulator like those of any link.
 *
 * Nothing is encrypted, but peers exchange keys and run ids all the same, so that links are refused
 * for the same reasons as over the network. */
#include "base/clock.h"
#include "net/core/frame.h"
#include "net/envelope/envelope.h"

#include <stdio.h>
#include <string.h>

enum {
    CHECK_MS = 50 // between two looks whether a peer's process has ended
};

static struct strait_envelope_link *state_of(struct strait_link *link) {
    return link->state;
}

/* ---- sending ---- */

/* When bytes that are ready now may be received; 0 without emulation: at once. */
static int64_t due_of(struct strait_envelope_link *l, int64_t ready_ns, size_t bytes) {
    if (!strait_emulate_is_on(&l->shaper.spec)) return 0;
    return strait_emulate_send(&l->shaper, ready_ns, bytes);
}

static strait_err send_envelope(struct strait_link *link, struct strait_envelope envelope) {
    const struct strait_envelope_transport *self = link->transport->state;
    envelope.to = state_of(link)->peer_id;
    return self->ops->send(self->endpoint, state_of(link)->peer_endpoint, &envelope);
}

static void send_hello(struct strait_link *link, strait_envelope_kind kind) {
    const struct strait_envelope_transport *self = link->transport->state;
    const strait_transport_config *config = &link->transport->config;
    struct strait_envelope envelope = {
        .kind = kind, .from = link->id, .reply_to = self->ops->number(self->endpoint)};
    envelope.key = *strait_identity_fingerprint(config->identity);
    envelope.hello.n_streams = 1;
    memcpy(envelope.hello.run, config->run, sizeof envelope.hello.run);
    memcpy(envelope.hello.name, config->name, sizeof envelope.hello.name);
    envelope.due_ns = due_of(state_of(link), strait_clock_ns(), STRAIT_FRAME_HEADER);
    (void)send_envelope(link, envelope); // a peer that has gone is noticed by the handshake timeout
}

static strait_err send_one(struct strait_link *link, struct strait_msg *msg) {
    struct strait_envelope_link *l = link->state;
    const size_t bytes = STRAIT_FRAME_HEADER + msg->size;
    struct strait_envelope envelope = {.kind = STRAIT_ENVELOPE_MESSAGE, .msg = msg};
    envelope.due_ns = due_of(l, msg->queued_ns, bytes);
    l->in_flight += bytes;
    l->stats.sent_bytes += bytes;
    l->stats.sent_payload += msg->size;
    l->stats.sent_messages++;
    const strait_err err = send_envelope(link, envelope);
    if (err != STRAIT_OK) strait_msg_close(&msg);
    return err;
}

/* Sends as much as the peer's credit and the emulated wire allow; returns when to try again. */
static int64_t pump(struct strait_link *link) {
    struct strait_envelope_link *l = link->state;
    const size_t window = link->transport->config.queue_bytes +
                          strait_emulate_in_flight(&l->shaper.spec);
    while (l->is_open && l->out.n_messages > 0 && l->in_flight < window) {
        const int64_t send_ns = strait_emulate_next_send_ns(&l->shaper, l->shaper.free_ns);
        if (send_ns > strait_clock_ns()) return send_ns;
        if (send_one(link, strait_priority_queue_pop(&l->out)) != STRAIT_OK)
            break; // the peer has gone: its BYE is on the way
    }
    return INT64_MAX;
}

strait_err strait_envelope_send(struct strait_link *link, struct strait_msg **msg) {
    struct strait_envelope_link *l = link->state;
    const strait_err err = strait_link_queue(link, l->is_open && !l->is_closing, &l->out, msg);
    if (err == STRAIT_EAGAIN) l->wants_writable = 1;
    if (err != STRAIT_OK) return err;
    (void)pump(link);
    return STRAIT_OK;
}

/* ---- links ---- */

static void add_link(struct strait_link *link, uint64_t peer_endpoint) {
    struct strait_envelope_transport *self = link->transport->state;
    struct strait_envelope_link *l = link->state;
    l->peer_endpoint = peer_endpoint;
    l->start_ns = l->received_ns = strait_clock_ns();
    strait_emulate_init(&l->shaper, &link->emulate, &link->transport->home, l->start_ns);
    l->next = self->links;
    self->links = link;
}

strait_err strait_envelope_dial(struct strait_link *link, const char *address) {
    const struct strait_envelope_transport *self = link->transport->state;
    uint64_t endpoint = 0;
    STRAIT_TRY(self->ops->find(self->endpoint, address, &endpoint));
    add_link(link, endpoint);
    send_hello(link, STRAIT_ENVELOPE_CONNECT);
    return STRAIT_OK;
}

static void set_bye(strait_bye *bye, strait_err why) {
    bye->why = why;
    (void)snprintf(bye->reason, sizeof bye->reason, "%.*s", (int)sizeof bye->reason - 1,
                   why == STRAIT_OK ? "closed by this program" : strait_err_detail());
}

/* Sends a BYE to the peer. closed() follows from progress(), with our own reason. */
void strait_envelope_close(struct strait_link *link, strait_err why) {
    const struct strait_envelope_transport *self = link->transport->state;
    struct strait_envelope_link *l = link->state;
    if (l->is_closing) return;
    l->is_closing = 1;
    set_bye(&l->bye, why);
    while (why == STRAIT_OK && l->is_open && l->out.n_messages > 0)
        (void)send_one(link, strait_priority_queue_pop(&l->out));
    struct strait_envelope envelope = {.kind = STRAIT_ENVELOPE_BYE, .bye = l->bye};
    envelope.due_ns = due_of(l, strait_clock_ns(), STRAIT_FRAME_HEADER);
    if (l->peer_id != 0) (void)send_envelope(link, envelope);
    self->ops->wake(self->endpoint);
}

static void retire(struct strait_link *link, strait_err why) {
    struct strait_transport *t = link->transport;
    struct strait_envelope_transport *self = t->state;
    struct strait_link **at = &self->links;
    while (*at != link)
        at = &state_of(*at)->next;
    *at = state_of(link)->next;
    strait_priority_queue_clear(&state_of(link)->out);
    strait_priority_queue_clear(&state_of(link)->held);
    strait_arrivals_clear(&state_of(link)->arriving);
    t->events->closed(t->user, link, why);
    strait_link_free(link);
}

void strait_envelope_fini(struct strait_transport *t) {
    struct strait_envelope_transport *self = t->state;
    while (self->links != NULL) {
        struct strait_link *link = self->links;
        strait_envelope_close(link, STRAIT_OK);
        strait_err_note(__FILE__, __LINE__, "closed by this program");
        retire(link, STRAIT_OK);
    }
    if (self->endpoint != NULL) self->ops->close(&self->endpoint);
}

/* ---- receiving ---- */

static strait_err authorize(struct strait_transport *t, const struct strait_link *link,
                            const struct strait_envelope *envelope, strait_emulate_spec *emulate) {
    strait_hello ours = {.run = {0}};
    STRAIT_TRY(strait_transport_authorize(t, link, &envelope->key, emulate));
    memcpy(ours.run, t->config.run, sizeof ours.run);
    memcpy(ours.name, t->config.name, sizeof ours.name);
    return strait_hello_match(&ours, &envelope->hello);
}

static void open_link(struct strait_link *link, const struct strait_envelope *envelope) {
    struct strait_transport *t = link->transport;
    link->peer = envelope->key;
    memcpy(link->peer_name, envelope->hello.name, sizeof link->peer_name);
    state_of(link)->peer_id = envelope->from;
    state_of(link)->is_open = 1;
    t->events->opened(t->user, link);
}

/* A peer dials: opens a link, or answers with a BYE that gives the reason. */
static void accept_peer(struct strait_transport *t, const struct strait_envelope *envelope) {
    struct strait_envelope_transport *self = t->state;
    struct strait_link *link = NULL;
    strait_emulate_spec emulate = t->config.emulate;
    strait_err err = authorize(t, NULL, envelope, &emulate);
    if (err == STRAIT_OK) err = strait_link_new(t, &link);
    if (err != STRAIT_OK) {
        struct strait_envelope refusal = {.kind = STRAIT_ENVELOPE_BYE, .to = envelope->from};
        set_bye(&refusal.bye, err);
        (void)self->ops->send(self->endpoint, envelope->reply_to, &refusal);
        char peer[STRAIT_PEER_TEXT];
        strait_peer_describe(self->ops->scheme, &envelope->key, peer);
        strait_err_prefix("%s", peer);
        t->events->refused(t->user, err);
        return;
    }
    link->emulate = emulate;
    (void)snprintf(link->address, sizeof link->address, "%s", self->ops->scheme);
    link->peer = envelope->key;
    add_link(link, envelope->reply_to);
    state_of(link)->peer_id = envelope->from;
    send_hello(link, STRAIT_ENVELOPE_ACCEPT);
    open_link(link, envelope);
}

/* The peer has accepted: checks its key and run as it has checked ours. */
static void finish_dial(struct strait_link *link, const struct strait_envelope *envelope) {
    strait_emulate_spec emulate = link->emulate;
    const strait_err err = authorize(link->transport, link, envelope, &emulate);
    state_of(link)->peer_id = envelope->from;
    if (err != STRAIT_OK)
        strait_envelope_close(link, err);
    else
        open_link(link, envelope);
}

static void receive(struct strait_link *link, struct strait_msg **msg) {
    struct strait_transport *t = link->transport;
    struct strait_envelope_link *l = link->state;
    const size_t bytes = STRAIT_FRAME_HEADER + (*msg)->size;
    l->stats.received_bytes += bytes;
    l->stats.received_payload += (*msg)->size;
    l->stats.received_messages++;
    /* Credit travels outside the emulated wire, which counts acknowledgements of a home itself. */
    (void)send_envelope(link,
                        (struct strait_envelope){.kind = STRAIT_ENVELOPE_CREDIT, .number = bytes});
    (*msg)->queued_ns = strait_clock_ns();
    t->events->received(t->user, link, msg);
}

/* Delivers a message, or holds it: while paused, and behind others that are held, to keep the
 * order.
 */
static void deliver(struct strait_link *link, struct strait_msg **msg) {
    struct strait_envelope_link *l = link->state;
    if (l->is_closing) return;
    if (l->is_paused || l->held.n_messages > 0)
        strait_priority_queue_push(&l->held, msg);
    else
        receive(link, msg);
}

/* A message passes the emulated way into this home before it is delivered. */
static void arrive(struct strait_link *link, struct strait_msg **msg, int64_t now_ns) {
    struct strait_envelope_link *l = link->state;
    const int64_t entered = strait_emulate_receive(&l->shaper, now_ns,
                                                   STRAIT_FRAME_HEADER + (*msg)->size);
    if (entered > now_ns)
        strait_arrivals_push(&l->arriving, msg, entered);
    else
        deliver(link, msg);
}

/* Delivers the messages that have passed; returns when the next one will have. */
static int64_t deliver_arrived(struct strait_link *link, int64_t now_ns) {
    struct strait_arrivals *arriving = &state_of(link)->arriving;
    for (struct strait_msg *msg; (msg = strait_arrivals_pop(arriving, now_ns)) != NULL;) {
        deliver(link, &msg);
        strait_msg_close(&msg);
    }
    return strait_arrivals_next_ns(arriving);
}

/* The peer has closed its end, or refuses ours. */
static void on_bye(struct strait_link *link, const struct strait_envelope *envelope) {
    strait_err why = envelope->bye.why;
    if (!state_of(link)->is_open) {
        strait_err_note(__FILE__, __LINE__, "refused by peer: %s", envelope->bye.reason);
    } else {
        strait_err_note(__FILE__, __LINE__, "peer closed the link%s%s",
                        why == STRAIT_OK ? "" : ": ", why == STRAIT_OK ? "" : envelope->bye.reason);
        why = STRAIT_ECLOSED;
    }
    strait_link_prefix_error(link);
    retire(link, why);
}

/* Delivers the end of a link that we closed. */
static void finish_close(struct strait_link *link) {
    const strait_bye bye = state_of(link)->bye;
    strait_err_note(__FILE__, __LINE__, "%s", bye.reason);
    strait_link_prefix_error(link);
    retire(link, bye.why);
}

static void dispatch(struct strait_transport *t, struct strait_envelope *envelope) {
    struct strait_envelope_transport *self = t->state;
    struct strait_link *link = self->links;
    while (link != NULL && link->id != envelope->to)
        link = state_of(link)->next;
    if (envelope->kind == STRAIT_ENVELOPE_CONNECT) accept_peer(t, envelope);
    if (link == NULL) return; // it closed before this envelope was due
    struct strait_envelope_link *l = link->state;
    const int64_t now = strait_clock_ns();
    l->received_ns = now;
    switch (envelope->kind) {
    case STRAIT_ENVELOPE_CONNECT: break;
    case STRAIT_ENVELOPE_ACCEPT: finish_dial(link, envelope); break;
    case STRAIT_ENVELOPE_MESSAGE: arrive(link, &envelope->msg, now); break;
    case STRAIT_ENVELOPE_CREDIT: l->in_flight -= envelope->number; break;
    case STRAIT_ENVELOPE_PING:
        envelope->kind = STRAIT_ENVELOPE_PONG;
        envelope->due_ns = due_of(l, now, STRAIT_FRAME_HEADER);
        (void)send_envelope(link, *envelope);
        break;
    case STRAIT_ENVELOPE_PONG:
        strait_stats_add_rtt(&l->stats, now - (int64_t)envelope->number);
        break;
    case STRAIT_ENVELOPE_BYE: on_bye(link, envelope); break;
    case STRAIT_N_ENVELOPE_KINDS: break;
    }
}

/* ---- the loop ---- */

/* Some endpoints know at once that a peer's process has ended; others leave it to the timeout. */
static strait_err check_peer(struct strait_link *link, int64_t now_ns) {
    const struct strait_envelope_transport *self = link->transport->state;
    const strait_transport_config *config = &link->transport->config;
    struct strait_envelope_link *l = link->state;
    const int limit_ms = l->is_open ? config->peer_timeout_ms : config->handshake_ms;
    if (self->ops->check != NULL && now_ns - l->checked_ns > (int64_t)CHECK_MS * 1000000) {
        l->checked_ns = now_ns;
        STRAIT_TRY(self->ops->check(self->endpoint, l->peer_endpoint));
    }
    if (l->is_paused || now_ns - l->received_ns <= (int64_t)limit_ms * 1000000) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "no data received from '%s' for %d ms: its thread has stopped or the "
                       "emulated link drops everything",
                       link->peer_name, limit_ms);
}

static void tick_link(struct strait_link *link, int64_t now_ns) {
    struct strait_envelope_link *l = link->state;
    const strait_transport_config *config = &link->transport->config;
    const strait_err err = check_peer(link, now_ns);
    if (err != STRAIT_OK) {
        strait_envelope_close(link, err);
        return;
    }
    if (!l->is_open || now_ns - l->pinged_ns < (int64_t)config->ping_ms * 1000000) return;
    l->pinged_ns = now_ns;
    struct strait_envelope ping = {.kind = STRAIT_ENVELOPE_PING, .number = (uint64_t)now_ns};
    ping.due_ns = due_of(l, now_ns, STRAIT_FRAME_HEADER);
    (void)send_envelope(link, ping);
}

/* Deadlines, held messages and sending of one link; returns when it next has something to do. */
static int64_t serve_link(struct strait_link *link, int64_t now_ns) {
    struct strait_transport *t = link->transport;
    struct strait_envelope_link *l = link->state;
    tick_link(link, now_ns);
    while (!l->is_paused && !l->is_closing && l->held.n_messages > 0) {
        struct strait_msg *msg = strait_priority_queue_pop(&l->held);
        receive(link, &msg);
        strait_msg_close(&msg);
    }
    const int64_t arrival_ns = deliver_arrived(link, now_ns);
    const int64_t send_ns = pump(link);
    const int64_t pump_ns = send_ns < arrival_ns ? send_ns : arrival_ns;
    if (l->wants_writable && !l->is_closing && l->out.n_bytes <= t->config.queue_bytes / 2) {
        l->wants_writable = 0;
        t->events->writable(t->user, link);
        return now_ns; // the handler may have sent or closed: look again at once
    }
    const struct strait_envelope_transport *self = t->state;
    int64_t tick_ms = t->config.ping_ms / 2;
    if (self->ops->check != NULL && tick_ms > CHECK_MS) tick_ms = CHECK_MS;
    const int64_t tick_ns = now_ns + tick_ms * 1000000;
    return pump_ns < tick_ns ? pump_ns : tick_ns;
}

strait_err strait_envelope_progress(struct strait_transport *t, int timeout_ms) {
    struct strait_envelope_transport *self = t->state;
    const int64_t now = strait_clock_ns();
    int64_t until = timeout_ms < 0 ? INT64_MAX : now + (int64_t)timeout_ms * 1000000;
    for (struct strait_link *link = self->links, *next = NULL; link != NULL; link = next) {
        next = state_of(link)->next;
        const int64_t next_ns = state_of(link)->is_closing ? now : serve_link(link, now);
        if (next_ns < until) until = next_ns;
        if (state_of(link)->is_closing) {
            finish_close(link);
            until = now;
        }
    }
    struct strait_envelope envelope;
    if (self->ops->receive(self->endpoint, until, &envelope)) {
        dispatch(t, &envelope);
        strait_msg_close(&envelope.msg);
    }
    return STRAIT_OK;
}
