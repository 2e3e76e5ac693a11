/* host_hear.c - what guests of a host say, looked at between two moves of the network. */
#include "base/clock.h"
#include "swarm/host/state.h"

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
static void count_replaced(struct host *h, int worker, const char *name) {
    const int64_t now = strait_clock_ns();
    if (now - h->replaced_ns[worker] > REPLACED_NS) {
        h->replaced_ns[worker] = now;
        h->n_replaced[worker] = 0;
    }
    if (++h->n_replaced[worker] == REPLACED_MANY)
        strait_host_note(
            h,
            "%s joins again and again while its older link is alive: if another "
            "machine has a copy of its key, give one of them a key of its own (--keys)",
            name);
}

static strait_err on_join(struct host *h, struct connection *connection,
                          const struct strait_msg *msg) {
    strait_join join;
    if (connection->worker >= 0)
        return STRAIT_OK; // said on a link that broke under it, and again on this
    STRAIT_TRY(strait_join_unpack(msg, &join));
    const strait_fingerprint key = connection->link
                                       ->peer; // the link may go while the store is asked
    const strait_err err = check_token(h, &join, &key);
    if (err != STRAIT_OK) {
        h->n_refused += err != STRAIT_EAGAIN;
        return err;
    }
    if (connection->link == NULL) return STRAIT_OK;
    /* An older link of the same key is forgotten first: its end will tell nobody. */
    const int known = strait_coordinator_find(&h->coordinator, &key);
    struct connection *older = strait_host_connection(h, known);
    if (known >= 0) h->connection_of[known] = -1;
    if (older != NULL) {
        count_replaced(h, known, join.report.name);
        strait_host_dismiss(h, older, STRAIT_ECLOSED, "replaced by a newer link");
    }
    strait_swarm_event event = {
        .kind = STRAIT_SWARM_JOIN, .key = key, .report = &join.report, .inventory = join.inventory};
    /* The machine's first words to it come with this event, so its place must be known by then. */
    connection->worker = strait_coordinator_admit(&h->coordinator, &key);
    if (connection->worker < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "the swarm is full");
    h->connection_of[connection->worker] = (int)(connection - h->connections);
    strait_host_feed_coordinator(h, &event);
    return STRAIT_OK;
}

static strait_err on_pulse(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    strait_heartbeat pulse;
    STRAIT_TRY(strait_heartbeat_unpack(msg, &pulse));
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                                                          .worker = connection->worker,
                                                          .inventory = pulse.inventory,
                                                          .progress = pulse.progress,
                                                          .is_waiting = pulse.is_waiting});
    return STRAIT_OK;
}

/* A reply to the order of the present round goes to the crew's table too. */
static strait_err on_reply(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    const struct strait_coordinator *m = &h->coordinator;
    const int stage = m->workers[connection->worker].stage;
    static _Thread_local strait_reply reply;
    if (stage < 0 || h->executor == NULL || msg->step != m->generation ||
        msg->microbatch != (uint16_t)m->sequence)
        return STRAIT_OK; // late
    struct remote *a = h->executor->state;
    STRAIT_TRY(strait_reply_unpack(msg, a->squares + (size_t)stage * (size_t)a->capacity,
                                   a->capacity, &reply));
    if (reply.err != STRAIT_OK)
        strait_host_note(h, "%s, stage %d: %.300s", m->workers[connection->worker].report.name,
                         stage, reply.text);
    if (m->phase == STRAIT_PHASE_ASSIGN)
        (void)snprintf(connection->address, sizeof connection->address, "%.255s", reply.text);
    if (m->phase == STRAIT_PHASE_CONNECT && reply.err != STRAIT_OK && reply.delay >= 0.0 &&
        reply.delay < STRAIT_RUN_STAGES)
        h->n_missed[(int)reply.delay]++;
    if (m->phase == STRAIT_PHASE_WORK && reply.spoiled > 0.0)
        strait_host_note(h, "%s, stage %d: %.0f of its values were no finite numbers",
                         m->workers[connection->worker].report.name, stage, reply.spoiled);
    if (m->phase == STRAIT_PHASE_WORK) a->replies[stage] = reply;
    const int is_behind = reply.refused[STRAIT_SENDER] > 0.0;
    const int is_blaming = is_behind || reply.refused[STRAIT_RECEIVER] > 0.0;
    if (is_blaming)
        strait_host_note(h, "%s, stage %d: %.0f values or copies from stage %d are no use",
                         m->workers[connection->worker].report.name, stage,
                         reply.refused[is_behind ? STRAIT_SENDER : STRAIT_RECEIVER],
                         is_behind ? stage + 1 : stage - 1);
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                 .worker = connection->worker,
                                 .generation = m->generation,
                                 .sequence = m->sequence,
                                 .err = reply.err,
                                 .is_blaming = is_blaming,
                                 .blamed = is_behind ? stage + 1 : stage - 1});
    return STRAIT_OK;
}

/* Pieces come only when a stage was told to save. */
static strait_err on_piece(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    strait_piece piece;
    const int stage = h->coordinator.workers[connection->worker].stage;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (h->command == NULL || h->command->kind != STRAIT_COMMAND_SAVE || piece.stage != stage)
        return STRAIT_OK; // late
    return strait_snapshot_add(&connection->snapshot, &piece,
                               (size_t)h->coordinator.config.need_bytes[stage] + (1 << 20));
}

/* Whether someone who has an invite wants to know how fast this link is from here. */
static int is_probed_for(const struct host *h, const struct connection *connection,
                         const struct strait_msg *msg) {
    return msg->type == STRAIT_MSG_PROBE && msg->size == STRAIT_TOKEN_BYTES &&
           !connection->was_probed && strait_invite_is_token(msg->body, h->invite.token);
}

static strait_err probe(struct host *h, struct connection *connection) {
    connection->was_probed = 1;
    for (int i = 0; i < STRAIT_PROBES; i++) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(strait_msg_open(h->pool, STRAIT_MSG_PROBE, STRAIT_PROBE_BYTES, &msg));
        memset(msg->body, 0, msg->size);
        strait_host_send(h, connection, &msg);
    }
    return STRAIT_OK;
}

static strait_err hear(struct host *h, struct connection *connection,
                       const struct strait_msg *msg) {
    if (msg->type == STRAIT_MSG_JOIN) return on_join(h, connection, msg);
    if (is_probed_for(h, connection, msg)) return probe(h, connection);
    if (connection->asked != NULL) return STRAIT_OK; // what it says has to wait
    if (connection->worker < 0) {                    // a few words may be left from a link before
        if (++connection->n_early <= EARLY_MAX) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_EPROTO, "it talks before it has joined");
    }
    switch (msg->type) {
    case STRAIT_MSG_HEARTBEAT: return on_pulse(h, connection, msg);
    case STRAIT_MSG_REPLY: return on_reply(h, connection, msg);
    case STRAIT_MSG_SNAPSHOT: return on_piece(h, connection, msg);
    case STRAIT_MSG_WANT: return strait_host_give(h, connection, msg);
    case STRAIT_MSG_LEAVE:
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = connection->worker});
        return STRAIT_OK;
    default: return STRAIT_FAIL(STRAIT_EPROTO, "a message of type %d", msg->type);
    }
}

/* Who must be approved, or wait for the store, stays, and its request is looked at again and again.
 */
static int must_wait(struct connection *connection, strait_err err, struct strait_msg **msg) {
    if (err != STRAIT_EAGAIN || (*msg)->type != STRAIT_MSG_JOIN) return 0;
    if (connection->asked != NULL) return 1;
    connection->asked = *msg;
    *msg = NULL;
    return 1;
}

/* Who may not join hears why, and that it is for good; what may pass only ends its link. */
static void send_away(struct host *h, struct connection *connection, int is_joining,
                      strait_err err) {
    char words[STRAIT_REASON_MAX];
    (void)snprintf(words, sizeof words, "%.255s", strait_err_detail());
    strait_host_note(h, "'%s' is sent away: %s",
                     connection->link != NULL ? connection->link->peer_name : "one that has left",
                     words);
    if (is_joining && err != STRAIT_ECLOSED)
        strait_host_refuse(h, connection, words);
    else
        strait_host_dismiss(h, connection,
                            err == STRAIT_EAUTH || err == STRAIT_ECLOSED ? err : STRAIT_EPROTO,
                            words);
}

/* A message of a guest, whose link may be gone by now. */
static void listen_to(struct host *h, struct connection *connection, struct strait_msg **msg) {
    if (connection->has_ended && (*msg)->type == STRAIT_MSG_JOIN) return;
    const strait_err err = hear(h, connection, *msg);
    if (err == STRAIT_OK || must_wait(connection, err, msg)) return;
    send_away(h, connection, (*msg)->type == STRAIT_MSG_JOIN, err);
}

void strait_host_forget(struct connection *connection) {
    strait_priority_queue_clear(&connection->in);
    strait_priority_queue_clear(&connection->out);
    strait_snapshot_fini(&connection->snapshot);
    strait_snapshot_reader_fini(&connection->gift);
    strait_msg_close(&connection->asked);
    *connection = (struct connection){.worker = -1};
}

/* All that an ended guest said has been heard. */
static void part(struct host *h, struct connection *connection) {
    const int worker = connection->worker;
    strait_host_forget(connection);
    if (worker < 0 || h->connection_of[worker] != (int)(connection - h->connections))
        return; // a newer link is there
    h->connection_of[worker] = -1;
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = worker});
}

void strait_host_dispatch(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->connections[i];
        while (connection->in.n_messages > 0) {
            struct strait_msg *msg = strait_priority_queue_pop(&connection->in);
            if (!connection->must_close) listen_to(h, connection, &msg);
            strait_msg_close(&msg);
        }
        if (connection->is_held) {
            connection->is_held = 0;
            if (connection->link != NULL) h->t->ops->pause(connection->link, 0);
        }
        if (strait_host_give_more(h, connection) != STRAIT_OK)
            strait_host_dismiss(h, connection, STRAIT_ECLOSED,
                                "there is no memory to send it its stage");
        if (connection->has_ended && connection->in.n_messages == 0) part(h, connection);
    }
    strait_host_close_given(h);
}

static void ask_again(struct host *h, struct connection *connection) {
    const strait_err err = on_join(h, connection, connection->asked);
    if (err == STRAIT_EAGAIN) return;
    strait_msg_close(&connection->asked);
    if (err != STRAIT_OK) send_away(h, connection, 1, err);
}

void strait_host_sweep(struct host *h, int64_t now_ns) {
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->connections[i];
        if (connection->link == NULL || connection->worker >= 0 || connection->must_close) continue;
        if (connection->asked != NULL) {
            ask_again(h, connection);
            continue;
        }
        if (now_ns - connection->since_ns < GREET_MS * INT64_C(1000000)) continue;
        h->n_refused++;
        strait_host_dismiss(h, connection, STRAIT_EAUTH, "it did not say why it came");
    }
}
