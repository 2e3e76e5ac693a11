/* inproc.c - the transport between threads of one process: whole messages go from mailbox to
 * mailbox, delayed by the emulator like those of any link.
 *
 * Nothing is encrypted, but peers exchange keys and run ids all the same, so that links are refused
 * for the same reasons as over the network. */
#include "base/clock.h"
#include "net/core/frame.h"
#include "net/core/priority_queue.h"
#include "net/core/transport.h"
#include "net/inproc/mailbox.h"

#include <stdio.h>
#include <string.h>

struct inproc_link {
    struct strait_link *next;                           // in the transport's list
    struct strait_mailbox *peer_mailbox;                // may be gone: strait_mailbox_send checks
    uint64_t peer_id;                                   // 0 until opened
    int is_open, is_closing, wants_writable, is_paused; // as in struct strait_multi_link
    struct strait_emulate shaper;
    struct strait_priority_queue out;  // not yet sent
    struct strait_priority_queue held; // received while paused
    size_t in_flight;                  // bytes for which the peer has returned no credit
    int64_t received_ns, pinged_ns, start_ns;
    strait_link_stats stats;
};

struct inproc {
    struct strait_inproc_network *network;
    struct strait_mailbox *mailbox;
    struct strait_link *links;
};

static struct inproc_link *state_of(struct strait_link *link) {
    return link->state;
}

static strait_err init(struct strait_transport *t) {
    struct inproc *self = t->state;
    self->network = t->config.network;
    if (self->network == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the inproc transport needs config.network");
    return strait_mailbox_open(self->network, &self->mailbox);
}

static strait_err listen_at(struct strait_transport *t, const char *address,
                            char out[STRAIT_ADDRESS_MAX]) {
    STRAIT_TRY(strait_mailbox_bind(((struct inproc *)t->state)->mailbox, address));
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%s", address);
    return STRAIT_OK;
}

/* ---- sending ---- */

/* When bytes that are ready now may be received; 0 without emulation: at once. */
static int64_t due_of(struct inproc_link *l, int64_t ready_ns, size_t bytes) {
    if (!strait_emulate_is_on(&l->shaper.spec)) return 0;
    return strait_emulate_send(&l->shaper, ready_ns, bytes);
}

static strait_err send_mail(struct strait_link *link, struct strait_mail mail) {
    struct inproc *self = link->transport->state;
    mail.to = state_of(link)->peer_id;
    return strait_mailbox_send(self->network, state_of(link)->peer_mailbox, &mail);
}

static void send_hello(struct strait_link *link, strait_mail_kind kind) {
    struct inproc *self = link->transport->state;
    const strait_transport_config *config = &link->transport->config;
    struct strait_mail mail = {.kind = kind, .from = link->id, .reply_to = self->mailbox};
    mail.key = *strait_identity_fingerprint(config->identity);
    mail.hello.n_streams = 1;
    memcpy(mail.hello.run, config->run, sizeof mail.hello.run);
    memcpy(mail.hello.name, config->name, sizeof mail.hello.name);
    mail.due_ns = due_of(state_of(link), strait_clock_ns(), STRAIT_FRAME_HEADER);
    (void)send_mail(link, mail); // a peer that has gone is noticed by the handshake timeout
}

static strait_err send_one(struct strait_link *link, struct strait_msg *msg) {
    struct inproc_link *l = link->state;
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
    struct inproc_link *l = link->state;
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

static strait_err send_msg(struct strait_link *link, struct strait_msg **msg) {
    struct inproc_link *l = link->state;
    const strait_err err = strait_link_queue(link, l->is_open && !l->is_closing, &l->out, msg);
    if (err == STRAIT_EAGAIN) l->wants_writable = 1;
    if (err != STRAIT_OK) return err;
    (void)pump(link);
    return STRAIT_OK;
}

/* ---- links ---- */

static void add_link(struct strait_link *link, struct strait_mailbox *peer_mailbox) {
    struct inproc *self = link->transport->state;
    struct inproc_link *l = link->state;
    l->peer_mailbox = peer_mailbox;
    l->start_ns = l->received_ns = strait_clock_ns();
    strait_emulate_init(&l->shaper, &link->emulate, l->start_ns);
    l->next = self->links;
    self->links = link;
}

static strait_err dial(struct strait_link *link, const char *address) {
    struct inproc *self = link->transport->state;
    struct strait_mailbox *mailbox = NULL;
    STRAIT_TRY(strait_mailbox_find(self->network, address, &mailbox));
    add_link(link, mailbox);
    send_hello(link, STRAIT_MAIL_CONNECT);
    return STRAIT_OK;
}

static void set_bye(strait_bye *bye, strait_err why) {
    bye->why = why;
    (void)snprintf(bye->reason, sizeof bye->reason, "%.*s", (int)sizeof bye->reason - 1,
                   why == STRAIT_OK ? "closed by this program" : strait_err_detail());
}

/* Sends a BYE to the peer, and one to our own mailbox: closed() must be delivered from progress().
 */
static void close_link(struct strait_link *link, strait_err why) {
    struct inproc *self = link->transport->state;
    struct inproc_link *l = link->state;
    if (l->is_closing) return;
    l->is_closing = 1;
    struct strait_mail mail = {.kind = STRAIT_MAIL_BYE, .to = link->id};
    set_bye(&mail.bye, why);
    while (why == STRAIT_OK && l->is_open && l->out.n_messages > 0)
        (void)send_one(link, strait_priority_queue_pop(&l->out));
    struct strait_mail theirs = mail;
    theirs.due_ns = due_of(l, strait_clock_ns(), STRAIT_FRAME_HEADER);
    if (l->peer_id != 0) (void)send_mail(link, theirs);
    mail.from = link->id; // equal to `to`: it is our own
    (void)strait_mailbox_send(self->network, self->mailbox, &mail);
}

static void retire(struct strait_link *link, strait_err why) {
    struct strait_transport *t = link->transport;
    struct inproc *self = t->state;
    struct strait_link **at = &self->links;
    while (*at != link)
        at = &state_of(*at)->next;
    *at = state_of(link)->next;
    strait_priority_queue_clear(&state_of(link)->out);
    strait_priority_queue_clear(&state_of(link)->held);
    t->events->closed(t->user, link, why);
    strait_link_free(link);
}

static void fini(struct strait_transport *t) {
    struct inproc *self = t->state;
    while (self->links != NULL) {
        struct strait_link *link = self->links;
        close_link(link, STRAIT_OK);
        strait_err_note(__FILE__, __LINE__, "closed by this program");
        retire(link, STRAIT_OK);
    }
    strait_mailbox_close(&self->mailbox);
}

static void pause_link(struct strait_link *link, int is_paused) {
    state_of(link)->is_paused = is_paused; // progress() delivers what was received meanwhile
    if (!is_paused) strait_mailbox_wake(((struct inproc *)link->transport->state)->mailbox);
}

static void stats(struct strait_link *link, strait_link_stats *out) {
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
    struct inproc *self = t->state;
    struct strait_link *link = NULL;
    strait_emulate_spec emulate = t->config.emulate;
    strait_err err = authorize(t, NULL, mail, &emulate);
    if (err == STRAIT_OK) err = strait_link_new(t, &link);
    if (err != STRAIT_OK) {
        struct strait_mail refusal = {.kind = STRAIT_MAIL_BYE, .to = mail->from};
        set_bye(&refusal.bye, err);
        (void)strait_mailbox_send(self->network, mail->reply_to, &refusal);
        char peer[STRAIT_PEER_TEXT];
        strait_peer_describe("inproc", &mail->key, peer);
        strait_err_prefix("%s", peer);
        t->events->refused(t->user, err);
        return;
    }
    link->emulate = emulate;
    (void)snprintf(link->address, sizeof link->address, "inproc");
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
        close_link(link, err);
    else
        open_link(link, mail);
}

static void receive(struct strait_link *link, struct strait_msg **msg) {
    struct strait_transport *t = link->transport;
    struct inproc_link *l = link->state;
    const size_t bytes = STRAIT_FRAME_HEADER + (*msg)->size;
    l->stats.received_bytes += bytes;
    l->stats.received_payload += (*msg)->size;
    l->stats.received_messages++;
    /* Credit travels outside the emulated wire, as TCP acknowledgements cost next to nothing. */
    (void)send_mail(link, (struct strait_mail){.kind = STRAIT_MAIL_CREDIT, .number = bytes});
    (*msg)->queued_ns = strait_clock_ns();
    t->events->received(t->user, link, msg);
}

/* Closes the link for the reason that its BYE gives. */
static void on_bye(struct strait_link *link, const struct strait_mail *mail) {
    const struct inproc_link *l = link->state;
    strait_err why = mail->bye.why;
    if (mail->from == link->id) {
        strait_err_note(__FILE__, __LINE__, "%s", mail->bye.reason);
    } else if (!l->is_open) {
        strait_err_note(__FILE__, __LINE__, "refused by peer: %s", mail->bye.reason);
    } else {
        strait_err_note(__FILE__, __LINE__, "peer closed the link%s%s",
                        why == STRAIT_OK ? "" : ": ", why == STRAIT_OK ? "" : mail->bye.reason);
        why = STRAIT_ECLOSED;
    }
    strait_link_prefix_error(link);
    retire(link, why);
}

static void dispatch(struct strait_transport *t, struct strait_mail *mail) {
    struct inproc *self = t->state;
    struct strait_link *link = self->links;
    while (link != NULL && link->id != mail->to)
        link = state_of(link)->next;
    if (mail->kind == STRAIT_MAIL_CONNECT) accept_peer(t, mail);
    if (link == NULL) return; // it closed before this mail was due
    struct inproc_link *l = link->state;
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
    }
}

/* ---- the loop ---- */

static void tick_link(struct strait_link *link, int64_t now_ns) {
    struct inproc_link *l = link->state;
    const strait_transport_config *config = &link->transport->config;
    const int limit_ms = l->is_open ? config->peer_timeout_ms : config->handshake_ms;
    if (l->is_closing) return;
    if (!l->is_paused && now_ns - l->received_ns > (int64_t)limit_ms * 1000000) {
        close_link(link, STRAIT_FAIL(STRAIT_ETIMEDOUT,
                                     "no data received from '%s' for %d ms: its thread has "
                                     "stopped or the emulated link drops everything",
                                     link->peer_name, limit_ms));
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
    struct inproc_link *l = link->state;
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
    const int64_t tick_ns = now_ns + (int64_t)t->config.ping_ms * 1000000 / 2;
    return pump_ns < tick_ns ? pump_ns : tick_ns;
}

static strait_err progress(struct strait_transport *t, int timeout_ms) {
    struct inproc *self = t->state;
    const int64_t now = strait_clock_ns();
    int64_t until = timeout_ms < 0 ? INT64_MAX : now + (int64_t)timeout_ms * 1000000;
    for (struct strait_link *link = self->links; link != NULL; link = state_of(link)->next) {
        const int64_t next_ns = serve_link(link, now);
        if (next_ns < until) until = next_ns;
    }
    struct strait_mail mail;
    if (strait_mailbox_receive(self->mailbox, until, &mail)) {
        dispatch(t, &mail);
        strait_msg_close(&mail.msg);
    }
    return STRAIT_OK;
}

static void wake(struct strait_transport *t) {
    strait_mailbox_wake(((struct inproc *)t->state)->mailbox);
}

const struct strait_transport_ops strait_transport_inproc = {
    .scheme = "inproc",
    .state_size = sizeof(struct inproc),
    .link_size = sizeof(struct inproc_link),
    .init = init,
    .fini = fini,
    .listen = listen_at,
    .dial = dial,
    .send = send_msg,
    .close = close_link,
    .pause = pause_link,
    .stats = stats,
    .progress = progress,
    .wake = wake,
};
