/* mail_transport.c - links made of mails: whole messages go from mailbox to mailbox, delayed by the
 * emulator like those of any link.
 *
 * Nothing is encrypted, but peers exchange keys and run ids all the same, so that links are refused
 * for the same reasons as over the network. */
#include "base/clock.h"
#include "net/core/frame.h"
#include "net/mail/mail.h"

#include <stdio.h>
#include <string.h>

enum {
    CHECK_MS = 50 // between two looks whether a peer's process has ended
};

static struct strait_mail_link *state_of(struct strait_link *link) {
    return link->state;
}

strait_err strait_mail_init(struct strait_transport *t, const struct strait_post_ops *post) {
    struct strait_mail_transport *self = t->state;
    self->post = post;
    return post->open(&t->config, &self->mailbox);
}

strait_err strait_mail_listen(struct strait_transport *t, const char *address,
                              char out[STRAIT_ADDRESS_MAX]) {
    const struct strait_mail_transport *self = t->state;
    return self->post->bind(self->mailbox, address, out);
}

/* ---- sending ---- */

/* When bytes that are ready now may be received; 0 without emulation: at once. */
static int64_t due_of(struct strait_mail_link *l, int64_t ready_ns, size_t bytes) {
    if (!strait_emulate_is_on(&l->shaper.spec)) return 0;
    return strait_emulate_send(&l->shaper, ready_ns, bytes);
}

static strait_err send_mail(struct strait_link *link, struct strait_mail mail) {
    const struct strait_mail_transport *self = link->transport->state;
    mail.to = state_of(link)->peer_id;
    return self->post->send(self->mailbox, state_of(link)->peer_mailbox, &mail);
}

static void send_hello(struct strait_link *link, strait_mail_kind kind) {
    const struct strait_mail_transport *self = link->transport->state;
    const strait_transport_config *config = &link->transport->config;
    struct strait_mail mail = {
        .kind = kind, .from = link->id, .reply_to = self->post->number(self->mailbox)};
    mail.key = *strait_identity_fingerprint(config->identity);
    mail.hello.n_streams = 1;
    memcpy(mail.hello.run, config->run, sizeof mail.hello.run);
    memcpy(mail.hello.name, config->name, sizeof mail.hello.name);
    mail.due_ns = due_of(state_of(link), strait_clock_ns(), STRAIT_FRAME_HEADER);
    (void)send_mail(link, mail); // a peer that has gone is noticed by the handshake timeout
}

static strait_err send_one(struct strait_link *link, struct strait_msg *msg) {
    struct strait_mail_link *l = link->state;
    const size_t bytes = STRAIT_FRAME_HEADER + msg->size;
    struct strait_mail mail = {.kind = STRAIT_MAIL_MESSAGE, .msg = msg};
    mail.due_ns = due_of(l, msg->queued_ns, bytes);
    l->in_flight += bytes;
    l->stats.sent_bytes += bytes;
    l->stats.sent_payload += msg->size;
    l->stats.sent_messages++;
    const strait_err err = send_mail(link, mail);
    if (err != STRAIT_OK) strait_msg_close(&msg);
    return err;
}

/* Sends as much as the peer's credit and the emulated wire allow; returns when to try again. */
static int64_t pump(struct strait_link *link) {
    struct strait_mail_link *l = link->state;
    const size_t window = link->transport->config.queue_bytes +
                          strait_emulate_in_flight(&l->shaper.spec);
    while (l->is_open && l->out.n_messages > 0 && l->in_flight < window) {
        const int64_t send_ns = strait_emulate_next_send_ns(&l->shaper);
        if (send_ns > strait_clock_ns()) return send_ns;
        if (send_one(link, strait_priority_queue_pop(&l->out)) != STRAIT_OK)
            break; // the peer has gone: its BYE is on the way
    }
    return INT64_MAX;
}

strait_err strait_mail_send(struct strait_link *link, struct strait_msg **msg) {
    struct strait_mail_link *l = link->state;
    const strait_err err = strait_link_queue(link, l->is_open && !l->is_closing, &l->out, msg);
    if (err == STRAIT_EAGAIN) l->wants_writable = 1;
    if (err != STRAIT_OK) return err;
    (void)pump(link);
    return STRAIT_OK;
}

/* ---- links ---- */

static void add_link(struct strait_link *link, uint64_t peer_mailbox) {
    struct strait_mail_transport *self = link->transport->state;
    struct strait_mail_link *l = link->state;
    l->peer_mailbox = peer_mailbox;
    l->start_ns = l->received_ns = strait_clock_ns();
    strait_emulate_init(&l->shaper, &link->emulate, l->start_ns);
    l->next = self->links;
    self->links = link;
}

strait_err strait_mail_dial(struct strait_link *link, const char *address) {
    const struct strait_mail_transport *self = link->transport->state;
    uint64_t mailbox = 0;
    STRAIT_TRY(self->post->find(self->mailbox, address, &mailbox));
    add_link(link, mailbox);
    send_hello(link, STRAIT_MAIL_CONNECT);
    return STRAIT_OK;
}

static void set_bye(strait_bye *bye, strait_err why) {
    bye->why = why;
    (void)snprintf(bye->reason, sizeof bye->reason, "%.*s", (int)sizeof bye->reason - 1,
                   why == STRAIT_OK ? "closed by this program" : strait_err_detail());
}

/* Sends a BYE to the peer. closed() follows from progress(), with our own reason. */
void strait_mail_close(struct strait_link *link, strait_err why) {
    const struct strait_mail_transport *self = link->transport->state;
    struct strait_mail_link *l = link->state;
    if (l->is_closing) return;
    l->is_closing = 1;
    set_bye(&l->bye, why);
    while (why == STRAIT_OK && l->is_open && l->out.n_messages > 0)
        (void)send_one(link, strait_priority_queue_pop(&l->out));
    struct strait_mail mail = {.kind = STRAIT_MAIL_BYE, .bye = l->bye};
    mail.due_ns = due_of(l, strait_clock_ns(), STRAIT_FRAME_HEADER);
    if (l->peer_id != 0) (void)send_mail(link, mail);
    self->post->wake(self->mailbox);
}

static void retire(struct strait_link *link, strait_err why) {
    struct strait_transport *t = link->transport;
    struct strait_mail_transport *self = t->state;
    struct strait_link **at = &self->links;
    while (*at != link)
        at = &state_of(*at)->next;
    *at = state_of(link)->next;
    strait_priority_queue_clear(&state_of(link)->out);
    strait_priority_queue_clear(&state_of(link)->held);
    t->events->closed(t->user, link, why);
    strait_link_free(link);
}

void strait_mail_fini(struct strait_transport *t) {
    struct strait_mail_transport *self = t->state;
    while (self->links != NULL) {
        struct strait_link *link = self->links;
        strait_mail_close(link, STRAIT_OK);
        strait_err_note(__FILE__, __LINE__, "closed by this program");
        retire(link, STRAIT_OK);
    }
    if (self->mailbox != NULL) self->post->close(&self->mailbox);
}

void strait_mail_pause(struct strait_link *link, int is_paused) {
    state_of(link)->is_paused = is_paused; // progress() delivers what was received meanwhile
    if (!is_paused) strait_mail_wake(link->transport);
}

void strait_mail_stats(struct strait_link *link, strait_link_stats *out) {
    *out = state_of(link)->stats;
    out->queued_bytes = state_of(link)->out.n_bytes;
}

/* ---- receiving ---- */

static strait_err authorize(struct strait_transport *t, const struct strait_link *link,
                            const struct strait_mail *mail, strait_emulate_spec *emulate) {
    strait_hello ours = {.run = {0}};
    STRAIT_TRY(strait_transport_authorize(t, link, &mail->key, emulate));
    memcpy(ours.run, t->config.run, sizeof ours.run);
    memcpy(ours.name, t->config.name, sizeof ours.name);
    return strait_hello_match(&ours, &mail->hello);
}

static void open_link(struct strait_link *link, const struct strait_mail *mail) {
    struct strait_transport *t = link->transport;
    link->peer = mail->key;
    memcpy(link->peer_name, mail->hello.name, sizeof link->peer_name);
    state_of(link)->peer_id = mail->from;
    state_of(link)->is_open = 1;
    t->events->opened(t->user, link);
}

/* A peer dials: opens a link, or answers with a BYE that gives the reason. */
static void accept_peer(struct strait_transport *t, const struct strait_mail *mail) {
    struct strait_mail_transport *self = t->state;
    struct strait_link *link = NULL;
    strait_emulate_spec emulate = t->config.emulate;
    strait_err err = authorize(t, NULL, mail, &emulate);
    if (err == STRAIT_OK) err = strait_link_new(t, &link);
    if (err != STRAIT_OK) {
        struct strait_mail refusal = {.kind = STRAIT_MAIL_BYE, .to = mail->from};
        set_bye(&refusal.bye, err);
        (void)self->post->send(self->mailbox, mail->reply_to, &refusal);
        char peer[STRAIT_PEER_TEXT];
        strait_peer_describe(self->post->scheme, &mail->key, peer);
        strait_err_prefix("%s", peer);
        t->events->refused(t->user, err);
        return;
    }
    link->emulate = emulate;
    (void)snprintf(link->address, sizeof link->address, "%s", self->post->scheme);
    link->peer = mail->key;
    add_link(link, mail->reply_to);
    state_of(link)->peer_id = mail->from;
    send_hello(link, STRAIT_MAIL_ACCEPT);
    open_link(link, mail);
}

/* The peer has accepted: checks its key and run as it has checked ours. */
static void finish_dial(struct strait_link *link, const struct strait_mail *mail) {
    strait_emulate_spec emulate = link->emulate;
    const strait_err err = authorize(link->transport, link, mail, &emulate);
    state_of(link)->peer_id = mail->from;
    if (err != STRAIT_OK)
        strait_mail_close(link, err);
    else
        open_link(link, mail);
}

static void receive(struct strait_link *link, struct strait_msg **msg) {
    struct strait_transport *t = link->transport;
    struct strait_mail_link *l = link->state;
    const size_t bytes = STRAIT_FRAME_HEADER + (*msg)->size;
    l->stats.received_bytes += bytes;
    l->stats.received_payload += (*msg)->size;
    l->stats.received_messages++;
    /* Credit travels outside the emulated wire, as TCP acknowledgements cost next to nothing. */
    (void)send_mail(link, (struct strait_mail){.kind = STRAIT_MAIL_CREDIT, .number = bytes});
    (*msg)->queued_ns = strait_clock_ns();
    t->events->received(t->user, link, msg);
}

/* The peer has closed its end, or refuses ours. */
static void on_bye(struct strait_link *link, const struct strait_mail *mail) {
    strait_err why = mail->bye.why;
    if (!state_of(link)->is_open) {
        strait_err_note(__FILE__, __LINE__, "refused by peer: %s", mail->bye.reason);
    } else {
        strait_err_note(__FILE__, __LINE__, "peer closed the link%s%s",
                        why == STRAIT_OK ? "" : ": ", why == STRAIT_OK ? "" : mail->bye.reason);
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

static void dispatch(struct strait_transport *t, struct strait_mail *mail) {
    struct strait_mail_transport *self = t->state;
    struct strait_link *link = self->links;
    while (link != NULL && link->id != mail->to)
        link = state_of(link)->next;
    if (mail->kind == STRAIT_MAIL_CONNECT) accept_peer(t, mail);
    if (link == NULL) return; // it closed before this mail was due
    struct strait_mail_link *l = link->state;
    const int64_t now = strait_clock_ns();
    l->received_ns = now;
    switch (mail->kind) {
    case STRAIT_MAIL_CONNECT: break;
    case STRAIT_MAIL_ACCEPT: finish_dial(link, mail); break;
    case STRAIT_MAIL_MESSAGE:
        if (l->is_closing) break;
        if (l->is_paused || l->held.n_messages > 0) // behind others that are held: keep the order
            strait_priority_queue_push(&l->held, &mail->msg);
        else
            receive(link, &mail->msg);
        break;
    case STRAIT_MAIL_CREDIT: l->in_flight -= mail->number; break;
    case STRAIT_MAIL_PING:
        mail->kind = STRAIT_MAIL_PONG;
        mail->due_ns = due_of(l, now, STRAIT_FRAME_HEADER);
        (void)send_mail(link, *mail);
        break;
    case STRAIT_MAIL_PONG: strait_stats_add_rtt(&l->stats, now - (int64_t)mail->number); break;
    case STRAIT_MAIL_BYE: on_bye(link, mail); break;
    case STRAIT_N_MAIL_KINDS: break;
    }
}

/* ---- the loop ---- */

/* Some posts know at once that a peer's process has ended; others leave it to the timeout. */
static strait_err check_peer(struct strait_link *link, int64_t now_ns) {
    const struct strait_mail_transport *self = link->transport->state;
    const strait_transport_config *config = &link->transport->config;
    struct strait_mail_link *l = link->state;
    const int limit_ms = l->is_open ? config->peer_timeout_ms : config->handshake_ms;
    if (self->post->check != NULL && now_ns - l->checked_ns > (int64_t)CHECK_MS * 1000000) {
        l->checked_ns = now_ns;
        STRAIT_TRY(self->post->check(self->mailbox, l->peer_mailbox));
    }
    if (l->is_paused || now_ns - l->received_ns <= (int64_t)limit_ms * 1000000) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "no data received from '%s' for %d ms: its thread has stopped or the "
                       "emulated link drops everything",
                       link->peer_name, limit_ms);
}

static void tick_link(struct strait_link *link, int64_t now_ns) {
    struct strait_mail_link *l = link->state;
    const strait_transport_config *config = &link->transport->config;
    const strait_err err = check_peer(link, now_ns);
    if (err != STRAIT_OK) {
        strait_mail_close(link, err);
        return;
    }
    if (!l->is_open || now_ns - l->pinged_ns < (int64_t)config->ping_ms * 1000000) return;
    l->pinged_ns = now_ns;
    struct strait_mail ping = {.kind = STRAIT_MAIL_PING, .number = (uint64_t)now_ns};
    ping.due_ns = due_of(l, now_ns, STRAIT_FRAME_HEADER);
    (void)send_mail(link, ping);
}

/* Deadlines, held messages and sending of one link; returns when it next has something to do. */
static int64_t serve_link(struct strait_link *link, int64_t now_ns) {
    struct strait_transport *t = link->transport;
    struct strait_mail_link *l = link->state;
    tick_link(link, now_ns);
    while (!l->is_paused && !l->is_closing && l->held.n_messages > 0) {
        struct strait_msg *msg = strait_priority_queue_pop(&l->held);
        receive(link, &msg);
        strait_msg_close(&msg);
    }
    const int64_t pump_ns = pump(link);
    if (l->wants_writable && !l->is_closing && l->out.n_bytes <= t->config.queue_bytes / 2) {
        l->wants_writable = 0;
        t->events->writable(t->user, link);
        return now_ns; // the handler may have sent or closed: look again at once
    }
    const struct strait_mail_transport *self = t->state;
    int64_t tick_ms = t->config.ping_ms / 2;
    if (self->post->check != NULL && tick_ms > CHECK_MS) tick_ms = CHECK_MS;
    const int64_t tick_ns = now_ns + tick_ms * 1000000;
    return pump_ns < tick_ns ? pump_ns : tick_ns;
}

strait_err strait_mail_progress(struct strait_transport *t, int timeout_ms) {
    struct strait_mail_transport *self = t->state;
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
    struct strait_mail mail;
    if (self->post->receive(self->mailbox, until, &mail)) {
        dispatch(t, &mail);
        strait_msg_close(&mail.msg);
    }
    return STRAIT_OK;
}

void strait_mail_wake(struct strait_transport *t) {
    const struct strait_mail_transport *self = t->state;
    self->post->wake(self->mailbox);
}
