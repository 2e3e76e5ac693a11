/* dispatch.c - handles the messages of workers, between two polls of the network. */
#include "base/clock.h"
#include "stage/outer/outer.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    EARLY_MAX = 64, // messages accepted before a worker has joined
    JOIN_MS = 10000 // for a new connection to ask to join
};

static strait_err on_join(struct host *h, struct connection *connection,
                          const struct strait_msg *msg) {
    strait_join join;
    if (connection->worker >= 0)
        return STRAIT_OK; // repeated: sent before the last link broke, and again on this one
    strait_claims_finding finding = {0};
    STRAIT_TRY(strait_join_unpack(msg, &join));
    strait_claims_check(strait_swarm_layout(STRAIT_LAYOUT_JOIN), &join, &(strait_claims_limits){0},
                        &finding);
    /* A copy: the link may close while admitting it waits for the metastore. */
    const strait_fingerprint key = connection->link->peer;
    struct host_applicant applicant = {.key = key, .token = join.token, .name = join.report.name};
    memcpy(applicant.address, connection->link->source_address, sizeof applicant.address);
    const strait_err err = strait_host_admit(h, &applicant);
    if (err != STRAIT_OK) {
        h->links.n_refused += err != STRAIT_EAGAIN;
        return err;
    }
    if (connection->link == NULL) return STRAIT_OK;
    if (finding.field != NULL && strait_host_may_log(h, &key, join.report.name))
        strait_host_note(h, "%s: reported %s = %g, which is too much; using less", join.report.name,
                         finding.field, finding.value);
    /* An older link of the same key is detached first, so that its end does not count as a loss. */
    const int known = strait_coordinator_find(&h->coordinator, &key);
    struct connection *older = strait_host_connection(h, known);
    if (known >= 0) h->links.of_worker[known] = -1;
    if (older != NULL) {
        strait_host_count_reconnect(h, known, join.report.name);
        strait_host_disconnect(h, older, STRAIT_ECLOSED, "replaced by a newer link");
    }
    strait_swarm_event event = {.kind = STRAIT_SWARM_JOIN,
                                .key = key,
                                .report = &join.report,
                                .inventory = join.inventory,
                                .generation = join.generation};
    /* The event below already sends the worker a task, so its slot must be known before. */
    connection->worker = strait_coordinator_admit(&h->coordinator, &key);
    if (connection->worker < 0) {
        strait_host_make_slot(h, connection->link);
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "the run has no free slot for another worker: try again later");
    }
    h->links.of_worker[connection->worker] = (int)(connection - h->links.items);
    connection->link->message_max = h->t->config.message_max;
    strait_host_send_run_status(h, connection->worker); // before its first task
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
                                                          .arrived = heartbeat.arrived,
                                                          .progress = heartbeat.progress,
                                                          .waits_for = heartbeat.waits_for});
    return STRAIT_OK;
}

/* What a reply to any task or command reveals about the stage and its neighbours. */
struct evidence {
    strait_err err;
    int failed_side;                     // of an error: the neighbour it concerns
    double nonfinite;                    // non-finite values that the stage itself computed
    double rejected_prev, rejected_next; // values and snapshots rejected from each neighbour
    int is_source_bad;                   // the snapshot that it was to restore is another
    int lacks; // of an average that is not complete: the replica it lacks something from, from 1
};

static const char *describe_error(strait_err err) {
    if (err == STRAIT_ENOMEM) return "the stage takes more memory than the worker lends";
    if (err == STRAIT_ETIMEDOUT) return "a neighbour did not connect or answer in time";
    return strait_err_text(err);
}

/* Logs what is wrong and passes the reply to the coordinator, which decides who is at fault. */
static void report_reply(struct host *h, const struct connection *connection, int stage,
                         const struct evidence *e) {
    const struct strait_coordinator *c = &h->coordinator;
    const char *name = c->workers[connection->worker].report.name;
    const int blames_next = e->rejected_next > 0.0;
    const int is_blaming = blames_next || e->rejected_prev > 0.0;
    const int blamed = blames_next ? stage + 1 : stage - 1;
    if (e->err != STRAIT_OK)
        strait_host_note(h, "%s, stage %d: %s (its own log says more)", name, stage,
                         describe_error(e->err));
    if (e->nonfinite > 0.0)
        strait_host_note(h, "%s, stage %d: %.0f of its values were non-finite", name, stage,
                         e->nonfinite);
    if (is_blaming)
        strait_host_note(h, "%s, stage %d: rejected %.0f values or snapshots from stage %d", name,
                         stage, blames_next ? e->rejected_next : e->rejected_prev, blamed);
    /* Both ends may report one failure: the first report ends the phase. */
    const int is_first = c->phase != STRAIT_PHASE_WAITING && !strait_coordinator_has_replicas(c);
    const int has_other_route = e->err != STRAIT_OK && e->failed_side != 0 && is_first &&
                                strait_host_route_failed(h, e->failed_side < 0 ? stage - 1 : stage);
    const int waits_for = e->lacks > 0 ? STRAIT_SWARM_SAME_STAGE + e->lacks : 0;
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                                          .worker = connection->worker,
                                                          .generation = c->generation,
                                                          .sequence = c->sequence,
                                                          .err = e->err,
                                                          .failed_side = e->failed_side,
                                                          .has_other_route = has_other_route,
                                                          .is_blaming = is_blaming,
                                                          .blamed = blamed,
                                                          .is_source_bad = e->is_source_bad,
                                                          .waits_for = waits_for});
}

static void add_faults(struct evidence *e, const strait_stage_faults *faults) {
    e->nonfinite += faults->nonfinite;
    e->rejected_prev += faults->rejected_prev;
    e->rejected_next += faults->rejected_next;
}

/* Returns the stage that this connection may reply for; -1: late, not its own, or repeated: a
 * second reply must not overwrite the first. */
static int stage_of(const struct host *h, const struct connection *connection, uint32_t generation,
                    uint32_t sequence) {
    const struct strait_coordinator *c = &h->coordinator;
    const int is_due = connection->worker >= 0 && h->executor != NULL &&
                       generation == c->generation && sequence == c->sequence &&
                       strait_coordinator_awaits(c, connection->worker);
    return is_due ? strait_coordinator_stage_of(c, connection->worker) : -1;
}

/* A reply to OPEN in its phase, or to what the channel sent while working. */
static strait_err on_reply(struct host *h, struct connection *connection, struct strait_msg **msg) {
    const int is_working = h->coordinator.phase == STRAIT_PHASE_WORK;
    strait_stage_reply reply;
    STRAIT_TRY(strait_stage_reply_peek(*msg, &reply));
    strait_host_count_reply(h, connection);
    const int stage = stage_of(h, connection, reply.generation, reply.sequence);
    if (stage < 0) return STRAIT_OK;
    const int replica = h->coordinator.workers[connection->worker].replica;
    const int member = strait_run_plan_member(&h->executor->plan, stage, replica);
    struct evidence e = {.err = reply.err,
                         .failed_side = reply.failed_side,
                         .rejected_prev = reply.rejected_copies_prev,
                         .rejected_next = reply.rejected_copies_next};
    if (is_working) {
        STRAIT_TRY(strait_stage_replies_take(&h->work.channel.replies, member,
                                             h->work.queue[member].kind, msg));
        reply = h->work.channel.replies.items[member];
    }
    if (!strait_host_check_claims(
            h, connection->worker, &strait_stage_reply_header,
            is_working && reply.err == STRAIT_OK ? strait_stage_reply_layout(reply.kind) : NULL,
            &reply))
        return STRAIT_OK;
    const int is_done = is_working && reply.err == STRAIT_OK;
    if (is_working) h->work.channel.replies.items[member] = reply;
    if (is_done && reply.kind == STRAIT_COMMAND_GRADIENTS) add_faults(&e, &reply.gradients.faults);
    if (is_done && reply.kind == STRAIT_COMMAND_VALIDATE) add_faults(&e, &reply.validate.faults);
    if (is_done && reply.kind == STRAIT_COMMAND_OUTER && !reply.outer.is_complete)
        e.lacks = strait_outer_first(reply.outer.missing, reply.outer.withheld);
    report_reply(h, connection, stage, &e);
    return STRAIT_OK;
}

/* The task that each phase of the coordinator waits for replies to; 0: none. */
static int task_of(strait_swarm_phase phase) {
    switch (phase) {
    case STRAIT_PHASE_ASSIGN: return STRAIT_TASK_ASSIGN;
    case STRAIT_PHASE_LISTEN: return STRAIT_TASK_LISTEN;
    case STRAIT_PHASE_CONNECT: return STRAIT_TASK_CONNECT;
    case STRAIT_PHASE_RESTORE: return STRAIT_TASK_RESTORE;
    case STRAIT_PHASE_SNAPSHOT: return STRAIT_TASK_SNAPSHOT;
    default: return 0;
    }
}

static strait_err on_task_reply(struct host *h, struct connection *connection,
                                struct strait_msg *msg) {
    strait_task_reply reply;
    STRAIT_TRY(strait_task_reply_unpack(msg, &reply));
    strait_host_count_reply(h, connection);
    if (strait_host_audit_reply(h, connection, &reply)) return STRAIT_OK;
    const int stage = stage_of(h, connection, reply.generation, reply.sequence);
    const strait_swarm_phase phase = h->coordinator.phase;
    if (stage < 0) return STRAIT_OK;
    /* In phase WAITING, replies of the abandoned generation still arrive, which is not a fault. */
    if (phase != STRAIT_PHASE_WAITING && (int)reply.kind != task_of(phase))
        return STRAIT_FAIL(STRAIT_EPROTO, "unexpected reply to task %d, which is not in progress",
                           (int)reply.kind);
    if (!strait_host_check_claims(h, connection->worker,
                                  strait_swarm_layout(STRAIT_LAYOUT_TASK_REPLY), NULL, &reply))
        return STRAIT_OK;
    struct evidence e = {.err = reply.err,
                         .failed_side = reply.failed_side,
                         .rejected_prev = reply.rejected_copies_prev,
                         .rejected_next = reply.rejected_copies_next};
    if (phase == STRAIT_PHASE_ASSIGN && reply.kind == STRAIT_TASK_ASSIGN)
        (void)snprintf(connection->address, sizeof connection->address, "%.255s",
                       reply.err == STRAIT_OK ? reply.assign.address : "");
    if (reply.kind == STRAIT_TASK_RESTORE) e.is_source_bad = reply.restore.is_source_bad;
    report_reply(h, connection, stage, &e);
    return STRAIT_OK;
}

/* Pieces arrive only while a stage sends its snapshot for a checkpoint or for an audit. */
static strait_err on_piece(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    strait_piece piece;
    const int stage = h->coordinator.workers[connection->worker].stage;
    STRAIT_TRY(strait_piece_unpack(msg, &piece));
    if (strait_host_audit_piece(h, connection, &piece) || piece.must_keep) return STRAIT_OK;
    if (h->work.kind != STRAIT_COMMAND_SEND_SNAPSHOT || piece.stage != stage)
        return STRAIT_OK;                      // late
    size_t bytes = connection->snapshot.bytes; // as the first piece was checked
    if (piece.offset == 0)
        STRAIT_TRY(strait_snapshot_expected_bytes(&h->executor->plan, stage, &bytes));
    return strait_snapshot_add_piece(&connection->snapshot, &piece, bytes);
}

static strait_err on_snapshot_request(struct host *h, struct connection *connection,
                                      const struct strait_msg *msg) {
    strait_snapshot_request request;
    STRAIT_TRY(strait_snapshot_request_unpack(msg, &request));
    return strait_host_begin_snapshot(h, connection, &request);
}

/* Returns whether a peer that has the invite asks us to send bytes that measure the link. */
static int is_probe_request(struct host *h, const struct connection *connection,
                            const struct strait_msg *msg) {
    struct host_invite *invite = NULL;
    return msg->type == STRAIT_MSG_PROBE && msg->size == STRAIT_TOKEN_BYTES &&
           !connection->was_probed && strait_host_check_token(h, msg->body, &invite) == STRAIT_OK;
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
static strait_err handle(struct host *h, struct connection *connection, struct strait_msg **owned) {
    struct strait_msg *msg = *owned;
    if (msg->type == STRAIT_MSG_JOIN) return on_join(h, connection, msg);
    if (is_probe_request(h, connection, msg)) return probe(h, connection);
    if (connection->pending_join != NULL)
        return STRAIT_OK;         // nothing else counts before its request is decided
    if (connection->worker < 0) { // it may flush messages of an earlier link first
        if (++connection->n_early <= EARLY_MAX) return STRAIT_OK;
        return STRAIT_FAIL(STRAIT_EPROTO, "too many messages before the request to join");
    }
    switch (msg->type) {
    case STRAIT_MSG_HEARTBEAT: return on_heartbeat(h, connection, msg);
    case STRAIT_MSG_REPLY: return on_reply(h, connection, owned);
    case STRAIT_MSG_TASK_REPLY: return on_task_reply(h, connection, msg);
    case STRAIT_MSG_SNAPSHOT: return on_piece(h, connection, msg);
    case STRAIT_MSG_SNAPSHOT_REQUEST: return on_snapshot_request(h, connection, msg);
    case STRAIT_MSG_LEAVE:
        strait_host_audit_leaves(h, connection->worker);
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = connection->worker});
        return STRAIT_OK;
    default: return strait_host_audit_message(h, connection, msg);
    }
}

/* Keeps a request to join that needs approval or the metastore; retry_join decides on it. Returns
 * whether `err` means that. */
static int keep_pending(struct connection *connection, strait_err err, struct strait_msg **msg) {
    if (err != STRAIT_EAGAIN || (*msg)->type != STRAIT_MSG_JOIN) return 0;
    if (connection->pending_join != NULL) return 1;
    connection->pending_join = *msg;
    *msg = NULL;
    return 1;
}

/* TLS protects messages from damage on the way, so what an admitted worker's are is its own doing.
 * Pieces of snapshots may be late and then do not fit. */
static int is_malformed(const struct connection *connection, const struct strait_msg *msg,
                        strait_err err) {
    return connection->worker >= 0 && err == STRAIT_EPROTO && msg->type != STRAIT_MSG_SNAPSHOT;
}

/* A peer that may not join gets a final refusal with the reason. Other errors only close the link,
 * so that the worker can dial again. */
static void reject(struct host *h, struct connection *connection, int is_joining, strait_err err) {
    char reason[STRAIT_REASON_MAX];
    (void)snprintf(reason, sizeof reason, "%.255s", strait_err_detail());
    const char *name = connection->link != NULL ? connection->link->peer_name
                                                : "a closed connection";
    const strait_swarm_worker *worker = connection->worker >= 0
                                            ? &h->coordinator.workers[connection->worker]
                                            : NULL;
    if (worker != NULL && strait_host_may_log(h, &worker->key, name))
        strait_host_note(h, "'%s' is disconnected: %s", name, reason);
    if (worker == NULL) strait_host_note_stranger(h, "'%s' is disconnected: %s", name, reason);
    if (is_joining && err != STRAIT_ECLOSED)
        strait_host_refuse(h, connection, reason);
    else
        strait_host_disconnect(h, connection,
                               err == STRAIT_EAUTH || err == STRAIT_ECLOSED ? err : STRAIT_EPROTO,
                               reason);
}

/* Handles one message of a connection whose link may have closed since. Joining needs the link. */
static void handle_one(struct host *h, struct connection *connection, struct strait_msg **msg) {
    if (connection->has_ended && (*msg)->type == STRAIT_MSG_JOIN) return;
    const strait_err err = handle(h, connection, msg);
    if (err == STRAIT_OK || keep_pending(connection, err, msg)) return;
    const int worker = connection->worker;
    const int is_violation = is_malformed(connection, *msg, err);
    reject(h, connection, (*msg)->type == STRAIT_MSG_JOIN, err);
    if (is_violation)
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = worker});
}

void strait_host_connection_fini(struct connection *connection) {
    strait_priority_queue_clear(&connection->in);
    strait_priority_queue_clear(&connection->out);
    strait_snapshot_fini(&connection->snapshot);
    strait_snapshot_reader_fini(&connection->outgoing);
    strait_msg_close(&connection->pending_join);
    *connection = (struct connection){.worker = -1};
}

/* All messages of a closed connection have been handled, so nothing more comes from the worker. */
static void finish_closed(struct host *h, struct connection *connection) {
    const int worker = connection->worker;
    strait_host_connection_fini(connection);
    if (worker < 0 || h->links.of_worker[worker] != (int)(connection - h->links.items))
        return; // it has a newer link
    h->links.of_worker[worker] = -1;
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = worker});
}

void strait_host_dispatch(struct host *h) {
    for (int i = 0; i < h->links.n_items; i++) {
        struct connection *connection = &h->links.items[i];
        while (connection->in.n_messages > 0) {
            struct strait_msg *msg = strait_priority_queue_pop(&connection->in);
            if (!connection->must_close) handle_one(h, connection, &msg);
            strait_msg_close(&msg);
        }
        if (connection->is_paused) {
            connection->is_paused = 0;
            if (connection->link != NULL) h->t->ops->pause(connection->link, 0);
        }
        if (strait_host_continue_snapshot(h, connection) != STRAIT_OK)
            strait_host_disconnect(h, connection, STRAIT_ECLOSED,
                                   "the coordinator is out of memory and cannot send the snapshot");
        if (connection->has_ended && connection->in.n_messages == 0) finish_closed(h, connection);
    }
    strait_host_close_source(h);
}

static void retry_join(struct host *h, struct connection *connection) {
    const strait_err err = on_join(h, connection, connection->pending_join);
    if (err == STRAIT_EAGAIN) return;
    strait_msg_close(&connection->pending_join);
    if (err != STRAIT_OK) reject(h, connection, 1, err);
}

void strait_host_check_newcomers(struct host *h, int64_t now_ns) {
    for (int i = 0; i < h->links.n_items; i++) {
        struct connection *connection = &h->links.items[i];
        if (connection->link == NULL || connection->worker >= 0 || connection->must_close) continue;
        if (connection->pending_join != NULL) {
            retry_join(h, connection);
            continue;
        }
        if (now_ns - connection->opened_ns < JOIN_MS * INT64_C(1000000)) continue;
        h->links.n_refused++;
        strait_host_disconnect(h, connection, STRAIT_EAUTH, "no request to join within 10 s");
    }
}
