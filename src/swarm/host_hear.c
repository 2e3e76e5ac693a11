/* host_hear.c - what guests of a host say, looked at between two moves of the network. */
#include "base/clock.h"
#include "swarm/host_state.h"

#include <stdio.h>
#include <string.h>

#define REPLACED_NS INT64_C(60000000000)

enum {
    EARLY_MAX = 64,    // messages before it has joined
    GREET_MS = 10000,  // for a stranger to say why it came
    REPLACED_MANY = 10 // more than a bad line explains, within REPLACED_NS
};

static strait_err check_token(struct host *h, const strait_join *join,
                              const strait_fingerprint *key) {
    if (!strait_invite_is_token(join->token, h->invite.token))
        return STRAIT_FAIL(STRAIT_EAUTH, "the token is wrong: ask for a new invite");
    return strait_host_admit(h, key, join->report.name);
}

/* Two machines with one key take each other's place for ever: whoever looks should hear of it. */
static void count_replaced(struct host *h, int node, const char *name) {
    const int64_t now = strait_clock_ns();
    if (now - h->replaced_ns[node] > REPLACED_NS) {
        h->replaced_ns[node] = now;
        h->n_replaced[node] = 0;
    }
    if (++h->n_replaced[node] == REPLACED_MANY)
        strait_host_note(
            h,
            "%s joins again and again while its older link is alive: if another "
            "machine has a copy of its key, give one of them a key of its own (--keys)",
            name);
}

static strait_err on_join(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    strait_join join;
    if (guest->node >= 0) return STRAIT_OK; // said on a link that broke under it, and again on this
    STRAIT_TRY(strait_join_unpack(msg, &join));
    const strait_fingerprint key = guest->link->peer; // the link may go while the store is asked
    const strait_err err = check_token(h, &join, &key);
    if (err != STRAIT_OK) {
        h->n_refused += err != STRAIT_EAGAIN;
        return err;
    }
    if (guest->link == NULL) return STRAIT_OK;
    /* An older link of the same key is forgotten first: its end will tell nobody. */
    const int known = strait_coordinator_find(&h->machine, &key);
    struct guest *older = strait_host_guest(h, known);
    if (known >= 0) h->guest_of[known] = -1;
    if (older != NULL) {
        count_replaced(h, known, join.report.name);
        strait_host_dismiss(h, older, STRAIT_ECLOSED, "replaced by a newer link");
    }
    strait_swarm_event event = {
        .kind = STRAIT_SWARM_JOIN, .key = key, .report = &join.report, .held = join.held};
    /* The machine's first words to it come with this event, so its place must be known by then. */
    guest->node = strait_coordinator_admit(&h->machine, &key);
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
        strait_host_note(h, "%s, stage %d: %.0f values or copies from stage %d are no use",
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

/* Whether someone who has an invite wants to know how fast this link is from here. */
static int is_probed_for(const struct host *h, const struct guest *guest,
                         const struct strait_msg *msg) {
    return msg->type == STRAIT_MSG_PROBE && msg->size == STRAIT_TOKEN_BYTES && !guest->was_probed &&
           strait_invite_is_token(msg->body, h->invite.token);
}

static strait_err probe(struct host *h, struct guest *guest) {
    guest->was_probed = 1;
    for (int i = 0; i < STRAIT_PROBES; i++) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_msg_open(h->pool, STRAIT_MSG_PROBE, STRAIT_PROBE_BYTES, &msg));
        memset(msg->body, 0, msg->size);
        strait_host_send(h, guest, &msg);
    }
    return STRAIT_OK;
}

static strait_err hear(struct host *h, struct guest *guest, const struct strait_msg *msg) {
    if (msg->type == STRAIT_MSG_JOIN) return on_join(h, guest, msg);
    if (is_probed_for(h, guest, msg)) return probe(h, guest);
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

/* Who must be approved, or wait for the store, stays, and its request is looked at again and again.
 */
static int must_wait(struct guest *guest, strait_err err, struct strait_msg **msg) {
    if (err != STRAIT_EAGAIN || (*msg)->type != STRAIT_MSG_JOIN) return 0;
    if (guest->asked != NULL) return 1;
    guest->asked = *msg;
    *msg = NULL;
    return 1;
}

/* Who may not join hears why, and that it is for good; what may pass only ends its link. */
static void send_away(struct host *h, struct guest *guest, int is_joining, strait_err err) {
    char words[STRAIT_WORDS_MAX];
    (void)snprintf(words, sizeof words, "%.255s", strait_err_detail());
    strait_host_note(h, "'%s' is sent away: %s",
                     guest->link != NULL ? guest->link->peer_name : "one that has left", words);
    if (is_joining && err != STRAIT_ECLOSED)
        strait_host_refuse(h, guest, words);
    else
        strait_host_dismiss(
            h, guest, err == STRAIT_EAUTH || err == STRAIT_ECLOSED ? err : STRAIT_EPROTO, words);
}

/* A message of a guest, whose link may be gone by now. */
static void listen_to(struct host *h, struct guest *guest, struct strait_msg **msg) {
    if (guest->has_ended && (*msg)->type == STRAIT_MSG_JOIN) return;
    const strait_err err = hear(h, guest, *msg);
    if (err == STRAIT_OK || must_wait(guest, err, msg)) return;
    send_away(h, guest, (*msg)->type == STRAIT_MSG_JOIN, err);
}

void strait_host_forget(struct guest *guest) {
    strait_lanes_clear(&guest->in);
    strait_lanes_clear(&guest->out);
    strait_image_fini(&guest->image);
    strait_gift_fini(&guest->gift);
    strait_msg_close(&guest->asked);
    *guest = (struct guest){.node = -1};
}

/* All that an ended guest said has been heard. */
static void part(struct host *h, struct guest *guest) {
    const int node = guest->node;
    strait_host_forget(guest);
    if (node < 0 || h->guest_of[node] != (int)(guest - h->guests)) return; // a newer link is there
    h->guest_of[node] = -1;
    strait_host_tell(h, &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .node = node});
}

void strait_host_hear(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_GUESTS; i++) {
        struct guest *guest = &h->guests[i];
        while (guest->in.n_messages > 0) {
            struct strait_msg *msg = strait_lanes_pop(&guest->in);
            if (!guest->must_close) listen_to(h, guest, &msg);
            strait_msg_close(&msg);
        }
        if (guest->is_held) {
            guest->is_held = 0;
            if (guest->link != NULL) h->t->ops->hold(guest->link, 0);
        }
        if (strait_host_give_more(h, guest) != STRAIT_OK)
            strait_host_dismiss(h, guest, STRAIT_ECLOSED,
                                "there is no memory to send it its stage");
        if (guest->has_ended && guest->in.n_messages == 0) part(h, guest);
    }
    strait_host_close_given(h);
}

static void ask_again(struct host *h, struct guest *guest) {
    const strait_err err = on_join(h, guest, guest->asked);
    if (err == STRAIT_EAGAIN) return;
    strait_msg_close(&guest->asked);
    if (err != STRAIT_OK) send_away(h, guest, 1, err);
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
