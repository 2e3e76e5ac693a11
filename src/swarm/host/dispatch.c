/* dispatch.c - handles the messages of workers, between two polls of the network. */
#include "base/clock.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

#define REPLACED_NS INT64_C(60000000000)

enum {
    EARLY_MAX = 64,    // messages before it has joined
    GREET_MS = 10000,  // for a new connection to ask to join
    REPLACED_MANY = 10 // within REPLACED_NS: more than a bad link explains
};

static strait_err check_token(struct host *h, const strait_join *join,
                              const strait_fingerprint *key) {
    if (!strait_invite_is_token(join->token, h->invite.token))
        return STRAIT_FAIL(STRAIT_EAUTH, "the token is wrong: ask for a new invite");
    return strait_host_admit(h, key, join->report.name);
}

/* Two workers with one key would replace each other for ever: the operator has to know. */
static void count_replaced(struct host *h, int worker, const char *name) {
    const int64_t now = strait_clock_ns();
    if (now - h->links.replaced_ns[worker] > REPLACED_NS) {
        h->links.replaced_ns[worker] = now;
        h->links.n_replaced[worker] = 0;
    }
    if (++h->links.n_replaced[worker] == REPLACED_MANY)
        strait_host_note(h,
                         "worker %s keeps reconnecting while its previous link is still up: if two "
                         "workers share one key, give one of them its own (--keys)",
                         name);
}

static strait_err on_join(struct host *h, struct connection *connection,
                          const struct strait_msg *msg) {
    strait_join join;
    if (connection->worker >= 0)
        return STRAIT_OK; // sent before the last link broke, and again on this one
    STRAIT_TRY(strait_join_unpack(msg, &join));
    const strait_fingerprint key = connection->link
                                       ->peer; // the link may close while the metastore is asked
    const strait_err err = check_token(h, &join, &key);
    if (err != STRAIT_OK) {
        h->links.n_refused += err != STRAIT_EAGAIN;
        return err;
    }
    if (connection->link == NULL) return STRAIT_OK;
    /* An older link of the same key is detached first, so that its end does not count as a loss. */
    const int known = strait_coordinator_find(&h->coordinator, &key);
    struct connection *older = strait_host_connection(h, known);
    if (known >= 0) h->links.of_worker[known] = -1;
    if (older != NULL) {
        count_replaced(h, known, join.report.name);
        strait_host_dismiss(h, older, STRAIT_ECLOSED, "replaced by a newer link");
    }
    strait_swarm_event event = {
        .kind = STRAIT_SWARM_JOIN, .key = key, .report = &join.report, .inventory = join.inventory};
    /* The coordinator's first task for it comes with this event, so its place must be known before.
     */
    connection->worker = strait_coordinator_admit(&h->coordinator, &key);
    if (connection->worker < 0)
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "the run has no free slot for another worker: try again later");
    h->links.of_worker[connection->worker] = (int)(connection - h->links.items);
    strait_host_feed_coordinator(h, &event);
    return STRAIT_OK;
}

static strait_err on_heartbeat(struct host *h, struct connection *connection,
                               const struct strait_msg *msg) {
    strait_heartbeat heartbeat;
    STRAIT_TRY(strait_heartbeat_unpack(msg, &heartbeat));
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_HEARTBEAT,
                                                          .worker = connection->worker,
                                                          .inventory = heartbeat.inventory,
                                                          .progress = heartbeat.progress,
                                                          .is_waiting = heartbeat.is_waiting});
    return STRAIT_OK;
}

/* What a reply says about the stage and its neighbours, whatever it answers. */
struct evidence {
    strait_err err;
    const char *reason;
    double nonfinite;                    // values of its own
    double rejected_prev, rejected_next; // values and snapshots from there
};

/* Notes what is wrong, blames a neighbour where the reply does, and passes it to the coordinator.
 */
static void conclude(struct host *h, const struct connection *connection, int stage,
                     const struct evidence *e) {
    const struct strait_coordinator *c = &h->coordinator;
    const char *name = c->workers[connection->worker].report.name;
    const int blames_next = e->rejected_next > 0.0;
    const int is_blaming = blames_next || e->rejected_prev > 0.0;
    const int blamed = blames_next ? stage + 1 : stage - 1;
    if (e->err != STRAIT_OK) strait_host_note(h, "%s, stage %d: %.300s", name, stage, e->reason);
    if (e->nonfinite > 0.0)
        strait_host_note(h, "%s, stage %d: %.0f of its values were non-finite", name, stage,
                         e->nonfinite);
    if (is_blaming)
        strait_host_note(h, "%s, stage %d: rejected %.0f values or snapshots from stage %d", name,
                         stage, blames_next ? e->rejected_next : e->rejected_prev, blamed);
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                                          .worker = connection->worker,
                                                          .generation = c->generation,
                                                          .sequence = c->sequence,
                                                          .err = e->err,
                                                          .is_blaming = is_blaming,
                                                          .blamed = blamed});
}

static void add_faults(struct evidence *e, const strait_stage_faults *faults) {
    e->nonfinite += faults->nonfinite;
    e->rejected_prev += faults->rejected_prev;
    e->rejected_next += faults->rejected_next;
}

/* The stage that this connection may answer for; -1: none. */
static int stage_of(const struct host *h, const struct connection *connection, uint32_t generation,
                    uint32_t sequence) {
    const struct strait_coordinator *c = &h->coordinator;
    if (h->executor == NULL || generation != c->generation || sequence != c->sequence) return -1;
    return c->workers[connection->worker].stage;
}

/* A reply to a command: to open, or to what the channel sent. */
static strait_err on_reply(struct host *h, struct connection *connection, struct strait_msg **msg) {
    const int is_working = h->coordinator.phase == STRAIT_PHASE_WORK;
    strait_stage_reply reply;
    STRAIT_TRY(strait_stage_reply_peek(*msg, &reply));
    const int stage = stage_of(h, connection, reply.generation, reply.sequence);
    /* A second reply must not overwrite the first, which the coordinator has accepted already. */
    if (stage < 0 || !h->coordinator.is_awaited[stage]) return STRAIT_OK; // late or repeated
    struct evidence e = {reply.err, reply.reason, 0.0, reply.rejected_copies_prev,
                         reply.rejected_copies_next};
    if (is_working) {
        STRAIT_TRY(strait_stage_replies_take(&h->work.channel.replies, stage, h->work.kind, msg));
        reply = h->work.channel.replies.items[stage];
    }
    if (is_working && reply.err == STRAIT_OK && reply.kind == STRAIT_COMMAND_GRADIENTS)
        add_faults(&e, &reply.gradients.faults);
    if (is_working && reply.err == STRAIT_OK && reply.kind == STRAIT_COMMAND_VALIDATE)
        add_faults(&e, &reply.validate.faults);
    conclude(h, connection, stage, &e);
    return STRAIT_OK;
}

/* The task that each phase of the coordinator waits for replies to; 0: none. */
static int task_of(strait_swarm_phase phase) {
    switch (phase) {
    case STRAIT_PHASE_ASSIGN: return STRAIT_TASK_TAKE;
    case STRAIT_PHASE_LISTEN: return STRAIT_TASK_MEET;
    case STRAIT_PHASE_CONNECT: return STRAIT_TASK_DIAL;
    case STRAIT_PHASE_RESTORE: return STRAIT_TASK_RESTORE;
    case STRAIT_PHASE_SNAPSHOT: return STRAIT_TASK_KEEP;
    default: return 0;
    }
}

static strait_err on_task_reply(struct host *h, struct connection *connection,
                                struct strait_msg *msg) {
    strait_task_reply reply;
    STRAIT_TRY(strait_task_reply_unpack(msg, &reply));
    const int stage = stage_of(h, connection, reply.generation, reply.sequence);
    const strait_swarm_phase phase = h->coordinator.phase;
    if (stage < 0) return STRAIT_OK; // late
    /* While waiting, replies of an abandoned generation still arrive: that is no fault. */
    if (phase != STRAIT_PHASE_WAITING && (int)reply.kind != task_of(phase))
        return STRAIT_FAIL(STRAIT_EPROTO, "unexpected reply to task %d, which is not in progress",
                           (int)reply.kind);
    struct evidence e = {reply.err, reply.reason, 0.0, reply.rejected_copies_prev,
                         reply.rejected_copies_next};
    if (phase == STRAIT_PHASE_ASSIGN && reply.kind == STRAIT_TASK_TAKE)
        (void)snprintf(connection->address, sizeof connection->address, "%.255s",
                       reply.err == STRAIT_OK ? reply.take.address : "");
    if (phase == STRAIT_PHASE_CONNECT && reply.kind == STRAIT_TASK_DIAL &&
        reply.err != STRAIT_OK) { // once per boundary, or a way to connect would be skipped
        const int boundary = reply.dial.missing_boundary;
        if (boundary >= 0 && boundary < STRAIT_RUN_STAGES) h->ways.n_missed[boundary]++;
    }
    if (reply.kind == STRAIT_TASK_RESTORE) {
        e.rejected_prev += reply.restore.is_prev_bad;
        e.rejected_next += reply.restore.is_next_bad;
    }
    conclude(h, connection, stage, &e);
    return STRAIT_OK;
}

/* Pieces arrive only while a stage sends its snapshot for a checkpoint. */
static strait_err on_piece(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    strait_piece piece;
    const int stage = h->coordinator.workers[connection->worker].stage;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (h->work.kind != STRAIT_COMMAND_SEND_SNAPSHOT || piece.stage != stage)
        return STRAIT_OK; // late
    return strait_snapshot_add(&connection->snapshot, &piece,
                               (size_t)h->coordinator.config.need_bytes[stage] + (1 << 20));
}

static strait_err on_want(struct host *h, struct connection *connection,
                          const struct strait_msg *msg) {
    strait_want want;
    STRAIT_TRY(strait_want_unpack(msg, &want));
    return strait_host_send_wanted(h, connection, &want);
}

/* Whether a peer with the invite asks us to measure the link in our direction. */
static int is_probe_request(const struct host *h, const struct connection *connection,
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

/* May take *msg and clear it. */
static strait_err handle(struct host *h, struct connection *connection,
                         struct strait_msg **message) {
    struct strait_msg *msg = *message;
    if (msg->type == STRAIT_MSG_JOIN) return on_join(h, connection, msg);
    if (is_probe_request(h, connection, msg)) return probe(h, connection);
    if (connection->asked != NULL) return STRAIT_OK; // its request to join is undecided
    if (connection->worker < 0) {                    // messages may be left from an earlier link
        if (++connection->n_early <= EARLY_MAX) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_EPROTO, "too many messages before the request to join");
    }
    switch (msg->type) {
    case STRAIT_MSG_HEARTBEAT: return on_heartbeat(h, connection, msg);
    case STRAIT_MSG_REPLY: return on_reply(h, connection, message);
    case STRAIT_MSG_TASK_REPLY: return on_task_reply(h, connection, msg);
    case STRAIT_MSG_SNAPSHOT: return on_piece(h, connection, msg);
    case STRAIT_MSG_WANT: return on_want(h, connection, msg);
    case STRAIT_MSG_LEAVE:
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = connection->worker});
        return STRAIT_OK;
    default: return STRAIT_FAIL(STRAIT_EPROTO, "an unknown message of type %d", msg->type);
    }
}

/* A request that needs approval, or the metastore, is kept and decided later. */
static int must_wait(struct connection *connection, strait_err err, struct strait_msg **msg) {
    if (err != STRAIT_EAGAIN || (*msg)->type != STRAIT_MSG_JOIN) return 0;
    if (connection->asked != NULL) return 1;
    connection->asked = *msg;
    *msg = NULL;
    return 1;
}

/* A peer that may not join is told why, and that it is final; other errors only close its link. */
static void reject(struct host *h, struct connection *connection, int is_joining, strait_err err) {
    char reason[STRAIT_REASON_MAX];
    (void)snprintf(reason, sizeof reason, "%.255s", strait_err_detail());
    strait_host_note(h, "'%s' is disconnected: %s",
                     connection->link != NULL ? connection->link->peer_name : "a closed connection",
                     reason);
    if (is_joining && err != STRAIT_ECLOSED)
        strait_host_refuse(h, connection, reason);
    else
        strait_host_dismiss(h, connection,
                            err == STRAIT_EAUTH || err == STRAIT_ECLOSED ? err : STRAIT_EPROTO,
                            reason);
}

/* A message of a connection, whose link may be gone by now. */
static void handle_one(struct host *h, struct connection *connection, struct strait_msg **msg) {
    if (connection->has_ended && (*msg)->type == STRAIT_MSG_JOIN) return;
    const strait_err err = handle(h, connection, msg);
    if (err == STRAIT_OK || must_wait(connection, err, msg)) return;
    reject(h, connection, (*msg)->type == STRAIT_MSG_JOIN, err);
}

void strait_host_forget(struct connection *connection) {
    strait_priority_queue_clear(&connection->in);
    strait_priority_queue_clear(&connection->out);
    strait_snapshot_fini(&connection->snapshot);
    strait_snapshot_reader_fini(&connection->outgoing);
    strait_msg_close(&connection->asked);
    *connection = (struct connection){.worker = -1};
}

/* Everything that an ended connection sent was handled: the worker is lost. */
static void end(struct host *h, struct connection *connection) {
    const int worker = connection->worker;
    strait_host_forget(connection);
    if (worker < 0 || h->links.of_worker[worker] != (int)(connection - h->links.items))
        return; // it has a newer link
    h->links.of_worker[worker] = -1;
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = worker});
}

void strait_host_dispatch(struct host *h) {
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->links.items[i];
        while (connection->in.n_messages > 0) {
            struct strait_msg *msg = strait_priority_queue_pop(&connection->in);
            if (!connection->must_close) handle_one(h, connection, &msg);
            strait_msg_close(&msg);
        }
        if (connection->is_held) {
            connection->is_held = 0;
            if (connection->link != NULL) h->t->ops->pause(connection->link, 0);
        }
        if (strait_host_send_more(h, connection) != STRAIT_OK)
            strait_host_dismiss(h, connection, STRAIT_ECLOSED,
                                "the coordinator is out of memory and cannot send the snapshot");
        if (connection->has_ended && connection->in.n_messages == 0) end(h, connection);
    }
    strait_host_close_source(h);
}

static void ask_again(struct host *h, struct connection *connection) {
    const strait_err err = on_join(h, connection, connection->asked);
    if (err == STRAIT_EAGAIN) return;
    strait_msg_close(&connection->asked);
    if (err != STRAIT_OK) reject(h, connection, 1, err);
}

void strait_host_sweep(struct host *h, int64_t now_ns) {
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++) {
        struct connection *connection = &h->links.items[i];
        if (connection->link == NULL || connection->worker >= 0 || connection->must_close) continue;
        if (connection->asked != NULL) {
            ask_again(h, connection);
            continue;
        }
        if (now_ns - connection->since_ns < GREET_MS * INT64_C(1000000)) continue;
        h->links.n_refused++;
        strait_host_dismiss(h, connection, STRAIT_EAUTH, "no request to join within 10 s");
    }
}
