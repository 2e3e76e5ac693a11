/* host_desk.c - the links of a host: who may come in, what they say, what waits for them. */
#include "base/clock.h"
#include "swarm/host_state.h"

#include <stdio.h>
#include <string.h>

enum {
    EARLY_MAX = 64,
    GREET_MS = 10000,           // for a stranger to say why it came
    NEWCOMERS_MAX = 64,         // links that have not said so
    ANSWERS = 4,                // messages it may send for each that is sent to it
    WORDS_PER_S = 20,           // and without
    WORDS_MAX = 1000,           // at once
    OUT_MAX = 256 * 1024 * 1024 // bytes that may wait for one link
};

struct guest *strait_host_guest(struct host *h, int node) {
    if (node < 0 || h->guest_of[node] < 0) return NULL;
    struct guest *guest = &h->guests[h->guest_of[node]];
    return guest->link != NULL && !guest->must_close ? guest : NULL;
}

/* ---- sending ---- */

static void drain(struct guest *guest) {
    while (guest->out.n_messages > 0) {
        struct strait_msg *msg = strait_lanes_pop(&guest->out);
        const strait_err err = strait_link_send(guest->link, &msg);
        if (msg == NULL) continue;
        if (err == STRAIT_EAGAIN)
            strait_lanes_push_front(&guest->out, &msg);
        else
            strait_msg_close(&msg);
        return;
    }
}

void strait_host_send(struct host *h, struct guest *guest, struct strait_msg **msg) {
    if (guest == NULL || guest->link == NULL || guest->must_close) {
        strait_msg_close(msg);
        return;
    }
    if (guest->out.n_bytes + (*msg)->size > OUT_MAX) {
        strait_msg_close(msg);
        strait_host_dismiss(h, guest, STRAIT_ETIMEDOUT, "it takes nothing that is sent to it");
        return;
    }
    strait_lanes_push(&guest->out, msg);
    if (guest->allowance < WORDS_MAX) guest->allowance += ANSWERS;
    drain(guest);
}

void strait_host_dismiss(struct host *h, struct guest *guest, strait_err why, const char *words) {
    (void)h;
    if (guest->link == NULL || guest->must_close) return;
    guest->must_close = 1;
    strait_err_note(__FILE__, __LINE__, "%s", words);
    strait_link_close(guest->link, why);
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
    h->n_refused++;
}

static int is_newcomer(const struct guest *guest) {
    return guest->link != NULL && guest->node < 0 && !guest->must_close;
}

static int count_alike(const struct host *h, const struct guest *guest) {
    int n = 0;
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++)
        n += is_newcomer(&h->guests[i]) &&
             memcmp(h->guests[i].link->from, guest->link->from, sizeof guest->link->from) == 0;
    return n;
}

/* Where too many have not said why they came, the oldest from the address with most of them has to
 * go. */
static void make_room(struct host *h) {
    struct guest *worst = NULL;
    int n = 0;
    int n_alike = 0;
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++) {
        struct guest *guest = &h->guests[i];
        if (!is_newcomer(guest)) continue;
        n++;
        const int alike = count_alike(h, guest);
        const int is_younger = worst != NULL && guest->since_ns >= worst->since_ns;
        if (alike < n_alike || (alike == n_alike && is_younger)) continue;
        worst = guest;
        n_alike = alike;
    }
    if (n <= NEWCOMERS_MAX || worst == NULL) return;
    h->n_refused++;
    strait_host_dismiss(h, worst, STRAIT_ECLOSED, "too many came at once: try again");
}

static void opened(void *user, struct strait_link *link) {
    struct host *h = user;
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++) {
        struct guest *guest = &h->guests[i];
        if (guest->link != NULL) continue;
        const int64_t now = strait_clock_ns();
        *guest = (struct guest){
            .link = link, .node = -1, .since_ns = now, .heard_ns = now, .allowance = WORDS_MAX};
        link->user = guest;
        make_room(h);
        return;
    }
    h->n_refused++;
    link->user = NULL;
    strait_link_close(link, STRAIT_FAIL(STRAIT_ECLOSED, "the coordinator has too many guests"));
}

static void closed(void *user, struct strait_link *link, strait_err why) {
    struct host *h = user;
    struct guest *guest = link->user;
    (void)why;
    if (guest == NULL) return;
    const int node = guest->node;
    const int index = (int)(guest - h->guests);
    strait_lanes_clear(&guest->out);
    strait_image_fini(&guest->image);
    strait_msg_close(&guest->asked);
    *guest = (struct guest){.node = -1};
    if (node < 0 || h->guest_of[node] != index) return; // a newer link has taken its place
    h->guest_of[node] = -1;
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .node = node});
}

static void writable(void *user, struct strait_link *link) {
    (void)user;
    if (link->user != NULL) drain(link->user);
}

/* ---- what guests say ---- */

static strait_err check_token(struct host *h, const strait_join *join,
                              const strait_fingerprint *key) {
    if (!strait_invite_is_token(join->token, h->invite.token))
        return STRAIT_FAIL(STRAIT_EAUTH, "the token is wrong: ask for a new invite");
    return strait_host_admit(h, key, join->report.name);
}

static strait_err on_join(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    strait_join join;
    if (guest->node >= 0) return STRAIT_OK; // said on a link that broke under it, and again on this
    STRAIT_TRY(strait_join_unpack(msg, &join));
    const strait_err err = check_token(h, &join, &guest->link->peer);
    if (err != STRAIT_OK) {
        h->n_refused += err != STRAIT_EAGAIN;
        return err;
    }
    /* An older link of the same key is forgotten first: its end will tell nobody. */
    const int known = strait_coordinator_find(&h->machine, &guest->link->peer);
    struct guest *older = strait_host_guest(h, known);
    if (known >= 0) h->guest_of[known] = -1;
    if (older != NULL) strait_host_dismiss(h, older, STRAIT_ECLOSED, "replaced by a newer link");
    strait_swarm_event event = {.kind = STRAIT_SWARM_JOIN,
                                .key = guest->link->peer,
                                .report = &join.report,
                                .held = join.held};
    /* The machine's first words to it come with this event, so its place must be known by then. */
    guest->node = strait_coordinator_admit(&h->machine, &guest->link->peer);
    if (guest->node < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "the swarm is full");
    h->guest_of[guest->node] = (int)(guest - h->guests);
    strait_host_tell(h, &event);
    return STRAIT_OK;
}

static strait_err on_pulse(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    strait_pulse pulse;
    STRAIT_TRY(strait_pulse_unpack(msg, &pulse));
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_PULSE,
                                              .node = guest->node,
                                              .held = pulse.held,
                                              .progress = pulse.progress,
                                              .is_waiting = pulse.is_waiting});
    return STRAIT_OK;
}

/* A reply to the order of the present round goes to the crew's table too. */
static strait_err on_reply(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    const struct strait_coordinator *m = &h->machine;
    const int stage = m->nodes[guest->node].stage;
    static _Thread_local strait_reply reply;
    if (stage < 0 || h->crew == NULL || msg->step != m->epoch ||
        msg->microbatch != (uint16_t)m->round)
        return STRAIT_OK; // late
    struct apart *a = h->crew->state;
    STRAIT_TRY(
        strait_reply_unpack(msg, a->squares + (size_t)stage * (size_t)a->room, a->room, &reply));
    if (reply.err != STRAIT_OK)
        strait_host_note(h, "%s, stage %d: %.300s", m->nodes[guest->node].report.name, stage,
                         reply.text);
    if (m->phase == STRAIT_SWARM_TAKE)
        (void)snprintf(guest->address, sizeof guest->address, "%.255s", reply.text);
    if (m->phase == STRAIT_SWARM_DIAL && reply.err != STRAIT_OK && reply.delay >= 0.0 &&
        reply.delay < STRAIT_RUN_STAGES)
        h->n_missed[(int)reply.delay]++;
    if (m->phase == STRAIT_SWARM_WORK && reply.spoiled > 0.0)
        strait_host_note(h, "%s, stage %d: %.0f of its values were no finite numbers",
                         m->nodes[guest->node].report.name, stage, reply.spoiled);
    if (m->phase == STRAIT_SWARM_WORK) a->replies[stage] = reply;
    const int is_behind = reply.refused[STRAIT_HEAD] > 0.0;
    const int is_blaming = is_behind || reply.refused[STRAIT_TAIL] > 0.0;
    if (is_blaming)
        strait_host_note(h, "%s, stage %d: %.0f values from stage %d are no numbers",
                         m->nodes[guest->node].report.name, stage,
                         reply.refused[is_behind ? STRAIT_HEAD : STRAIT_TAIL],
                         is_behind ? stage + 1 : stage - 1);
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                              .node = guest->node,
                                              .epoch = m->epoch,
                                              .round = m->round,
                                              .err = reply.err,
                                              .is_blaming = is_blaming,
                                              .blamed = is_behind ? stage + 1 : stage - 1});
    return STRAIT_OK;
}

/* Pieces come only when a stage was told to save. */
static strait_err on_piece(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    strait_piece piece;
    const int stage = h->machine.nodes[guest->node].stage;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (h->order == NULL || h->order->kind != STRAIT_ORDER_SAVE || piece.stage != stage)
        return STRAIT_OK; // late
    return strait_image_add(&guest->image, &piece,
                            (size_t)h->machine.config.need_bytes[stage] + (1 << 20));
}

/* Pieces of an image that was ordered are as many as they are; the rest is answers, and pulses. */
static int may_talk(const struct host *h, struct guest *guest, const struct strait_msg *msg) {
    const int64_t now = strait_clock_ns();
    const int is_saving = h->order != NULL && h->order->kind == STRAIT_ORDER_SAVE;
    if (msg->type == STRAIT_MSG_IMAGE && is_saving) return 1;
    guest->allowance += (double)(now - guest->heard_ns) * 1e-9 * WORDS_PER_S;
    guest->heard_ns = now;
    if (guest->allowance > WORDS_MAX) guest->allowance = WORDS_MAX;
    guest->allowance -= 1.0;
    return guest->allowance >= 0.0;
}

static strait_err hear(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    if (!may_talk(h, guest, msg)) return STRAIT_FAIL(STRAIT_EPROTO, "it talks too much");
    if (msg->type == STRAIT_MSG_JOIN) return on_join(h, guest, msg);
    if (guest->asked != NULL) return STRAIT_OK; // what it says has to wait
    if (guest->node < 0) {                      // a few words may be left from a link before
        if (++guest->n_early <= EARLY_MAX) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_EPROTO, "it talks before it has joined");
    }
    switch (msg->type) {
    case STRAIT_MSG_PULSE: return on_pulse(h, guest, msg);
    case STRAIT_MSG_REPLY: return on_reply(h, guest, msg);
    case STRAIT_MSG_IMAGE: return on_piece(h, guest, msg);
    case STRAIT_MSG_WANT: return strait_host_give(h, guest, msg);
    case STRAIT_MSG_LEAVE:
        strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .node = guest->node});
        return STRAIT_OK;
    default: return STRAIT_FAIL(STRAIT_EPROTO, "a message of type %d", msg->type);
    }
}

/* Who must be approved stays, and its request is looked at again and again. */
static int must_wait(struct guest *guest, strait_err err, struct strait_msg **msg) {
    if (err != STRAIT_EAGAIN || (*msg)->type != STRAIT_MSG_JOIN) return 0;
    if (guest->asked != NULL) return 1;
    guest->asked = *msg;
    *msg = NULL;
    return 1;
}

static void received(void *user, struct strait_link *link, struct strait_msg **msg) {
    struct host *h = user;
    struct guest *guest = link->user;
    if (guest == NULL || guest->must_close) return;
    const strait_err err = hear(h, guest, *msg);
    if (err == STRAIT_OK || must_wait(guest, err, msg)) return;
    char words[STRAIT_WORDS_MAX];
    (void)snprintf(words, sizeof words, "%.255s", strait_err_detail());
    strait_host_note(h, "'%s' is sent away: %s", link->peer_name, words);
    if ((*msg)->type == STRAIT_MSG_JOIN && err != STRAIT_ECLOSED) {
        strait_host_refuse(h, guest, words);
        return;
    }
    strait_host_dismiss(h, guest,
                        err == STRAIT_EAUTH || err == STRAIT_ECLOSED ? err : STRAIT_EPROTO, words);
}

const struct strait_transport_events strait_host_desk = {
    .admit = admit,
    .refused = refused,
    .opened = opened,
    .received = received,
    .writable = writable,
    .closed = closed,
};

static void ask_again(struct host *h, struct guest *guest) {
    const strait_err err = on_join(h, guest, guest->asked);
    if (err == STRAIT_EAGAIN) return;
    strait_msg_close(&guest->asked);
    char words[STRAIT_WORDS_MAX];
    (void)snprintf(words, sizeof words, "%.255s", strait_err_detail());
    if (err != STRAIT_OK) strait_host_refuse(h, guest, words);
}

void strait_host_sweep(struct host *h, int64_t now_ns) {
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++) {
        struct guest *guest = &h->guests[i];
        if (guest->link == NULL || guest->node >= 0 || guest->must_close) continue;
        if (guest->asked != NULL) {
            ask_again(h, guest);
            continue;
        }
        if (now_ns - guest->since_ns < GREET_MS * INT64_C(1000000)) continue;
        h->n_refused++;
        strait_host_dismiss(h, guest, STRAIT_EAUTH, "it did not say why it came");
    }
}
