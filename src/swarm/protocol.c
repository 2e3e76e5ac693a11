/* protocol.c - the tables of all swarm messages, and packing and unpacking by them.
 *
 * One table per message serves both directions, so that sender and receiver cannot disagree. Values
 * from a peer are checked right after they are read: no caller sees one that is out of bounds. */
#include "swarm/protocol.h"

#include <string.h>

/* ---- the tables ---- */

#define JOIN(type, member)       STRAIT_FIELD(type, strait_join, member)
#define HEARTBEAT(type, member)  STRAIT_FIELD(type, strait_heartbeat, member)
#define TASK(type, member)       STRAIT_FIELD(type, strait_task, member)
#define TASK_REPLY(type, member) STRAIT_FIELD(type, strait_task_reply, member)
#define PIECE(type, member)      STRAIT_FIELD(type, strait_piece, member)
#define REQUEST(type, member)    STRAIT_FIELD(type, strait_snapshot_request, member)
#define COMMITMENT(type, member) STRAIT_FIELD(type, strait_commitment_message, member)
#define GIVE(type, member)       STRAIT_FIELD(type, strait_give, member)
#define GIVEN(type, member)      STRAIT_FIELD(type, strait_given, member)
#define WORK(type, member)       STRAIT_FIELD(type, strait_work_message, member)
#define RUN_STATUS(type, member) STRAIT_FIELD(type, strait_run_status, member)

/* The fields of strait_snapshot_set. Unused entries are sent too, so that the size is fixed. */
/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments name members */
#define SNAPSHOTS(field, set)                                                             \
    field(INT, inventory.set.stage), field(INT, inventory.set.n),                         \
        field(I64, inventory.set.steps[0]), field(U32, inventory.set.generations[0]),     \
        field(BYTES, inventory.set.digests[0]), field(I64, inventory.set.steps[1]),       \
        field(U32, inventory.set.generations[1]), field(BYTES, inventory.set.digests[1]), \
        field(I64, inventory.set.steps[2]), field(U32, inventory.set.generations[2]),     \
        field(BYTES, inventory.set.digests[2])
_Static_assert(STRAIT_SWARM_SNAPSHOTS == 3, "SNAPSHOTS lists three snapshots");

#define LIVE(field)                                                                    \
    field(INT, inventory.live.stage), field(I64, inventory.live.step),                 \
        field(U32, inventory.live.generation), field(FLAG, inventory.live.is_pending), \
        field(I64, inventory.live.first_kept)

#define PEER(side)                                                                    \
    TASK(FLAG, neighbours.side.is_present), TASK(BYTES, neighbours.side.key),         \
        TASK(FLAG, neighbours.side.is_near), TASK(FLAG, neighbours.side.must_listen), \
        TASK(NAME, neighbours.side.address)
/* NOLINTEND(bugprone-macro-parentheses) */

static const strait_field join_fields[] = {JOIN(BYTES, token),
                                           JOIN(U32, generation),
                                           JOIN(F64, report.memory_bytes),
                                           JOIN(F64, report.flops),
                                           JOIN(F64, report.up_bps),
                                           JOIN(F64, report.down_bps),
                                           JOIN(FLAG, report.is_reachable),
                                           JOIN(NAME, report.name),
                                           JOIN(NAME, report.device),
                                           SNAPSHOTS(JOIN, own),
                                           SNAPSHOTS(JOIN, prev),
                                           SNAPSHOTS(JOIN, next),
                                           LIVE(JOIN)};
static const strait_field heartbeat_fields[] = {
    SNAPSHOTS(HEARTBEAT, own),   SNAPSHOTS(HEARTBEAT, prev),
    SNAPSHOTS(HEARTBEAT, next),  LIVE(HEARTBEAT),
    HEARTBEAT(U32, progress),    HEARTBEAT(INT, waits_for),
    HEARTBEAT(U64, arrived.own), HEARTBEAT(U64, arrived.prev),
    HEARTBEAT(U64, arrived.next)};
static const strait_field piece_fields[] = {PIECE(INT, stage), PIECE(I64, step),
                                            PIECE(U32, generation), PIECE(U64, offset),
                                            PIECE(U64, total)};
static const strait_field request_fields[] = {REQUEST(U32, generation), REQUEST(REST, list)};

static const strait_field task_fields[] = {TASK(INT, kind), TASK(U32, generation),
                                           TASK(U32, sequence)};
static const strait_field assign[] = {
    TASK(INT, assign.stage),         TASK(INT, assign.replicas.replica),
    TASK(INT, assign.replicas.n[0]), TASK(INT, assign.replicas.n[1]),
    TASK(INT, assign.replicas.n[2]), TASK(INT, assign.replicas.most),
    TASK(I64, assign.valid_windows), TASK(FLAG, assign.commits),
    TASK(TEXT, assign.run_text)};
static const strait_field neighbours[] = {TASK(INT, neighbours.timeout_ms), PEER(prev), PEER(next),
                                          TASK(REST, neighbours.others)};
static const strait_field restore[] = {
    TASK(I64, restore.step),          TASK(INT, restore.source),   TASK(FLAG, restore.gives_prev),
    TASK(FLAG, restore.gives_next),   TASK(BYTES, restore.digest), TASK(I64, restore.live_step),
    TASK(INT, restore.gives_replicas)};
static const strait_field refuse[] = {TASK(REASON, refuse.reason)};
static const strait_field stay[] = {TASK(REASON, stay.reason)};
static const strait_field audit[] = {TASK(INT, audit.stage),      TASK(I64, audit.step),
                                     TASK(INT, audit.n_slots),    TASK(I64, audit.valid_windows),
                                     TASK(FLAG, audit.from_seed), TASK(INT, audit.n_replicas),
                                     TASK(BYTES, audit.digest),   TASK(TEXT, audit.run_text)};
static const strait_field audit_step[] = {TASK(I64, audit_step.step), TASK(F32, audit_step.factor),
                                          TASK(FLAG, audit_step.is_skipped),
                                          TASK(REST, audit_step.owners)};

static const strait_field audit_end[] = {TASK(FLAG, audit_end.sends_snapshot)};

static const strait_field task_reply_fields[] = {TASK_REPLY(INT, kind),
                                                 TASK_REPLY(U32, generation),
                                                 TASK_REPLY(U32, sequence),
                                                 TASK_REPLY(INT, err),
                                                 TASK_REPLY(INT, failed_side),
                                                 TASK_REPLY(INT, rejected_copies_prev),
                                                 TASK_REPLY(INT, rejected_copies_next)};
static const strait_field assigned[] = {TASK_REPLY(REASON, assign.address)};
static const strait_field restored[] = {TASK_REPLY(FLAG, restore.is_source_bad)};
static const strait_field audited[] = {
    TASK_REPLY(BYTES, audit_end.sent_prev), TASK_REPLY(BYTES, audit_end.sent_next),
    TASK_REPLY(BYTES, audit_end.snapshot), TASK_REPLY(BYTES, audit_end.reports)};
static const strait_field audited_step[] = {TASK_REPLY(REST, audit_step.work)};

static const strait_field commitment_fields[] = {COMMITMENT(INT, stage),
                                                 COMMITMENT(U32, generation),
                                                 COMMITMENT(I64, interval.from),
                                                 COMMITMENT(I64, interval.to),
                                                 COMMITMENT(BYTES, interval.sent_prev),
                                                 COMMITMENT(BYTES, interval.sent_next),
                                                 COMMITMENT(BYTES, interval.received_prev),
                                                 COMMITMENT(BYTES, interval.received_next),
                                                 COMMITMENT(BYTES, interval.snapshot)};
static const strait_field give_fields[] = {GIVE(U32, audit),       GIVE(I64, from),
                                           GIVE(I64, to),          GIVE(FLAG, wants_snapshot),
                                           GIVE(FLAG, wants_prev), GIVE(FLAG, wants_next)};
static const strait_field given_fields[] = {GIVEN(U32, audit), GIVEN(INT, err)};

static const strait_field work_fields[] = {WORK(INT, stage), WORK(U32, generation), WORK(I64, step),
                                           WORK(REST, row)};

static const strait_field run_status_fields[] = {
    RUN_STATUS(NAME, name),        RUN_STATUS(NAME, model),    RUN_STATUS(INT, n_stages),
    RUN_STATUS(INT, n_workers),    RUN_STATUS(I64, step),      RUN_STATUS(I64, n_steps),
    RUN_STATUS(I64, batch_tokens), RUN_STATUS(F64, loss),      RUN_STATUS(F64, tokens_per_s),
    RUN_STATUS(F64, left_s),       RUN_STATUS(F64, need_bytes)};

static const strait_layout layouts[STRAIT_LAYOUTS] = {
    [STRAIT_LAYOUT_JOIN] = STRAIT_LAYOUT("join", join_fields),
    [STRAIT_LAYOUT_HEARTBEAT] = STRAIT_LAYOUT("heartbeat", heartbeat_fields),
    [STRAIT_LAYOUT_PIECE] = STRAIT_LAYOUT("snapshot",
                                          piece_fields), // the bytes of the piece follow
    [STRAIT_LAYOUT_SNAPSHOT_REQUEST] = STRAIT_LAYOUT("snapshot_request", request_fields),
    [STRAIT_LAYOUT_TASK] = STRAIT_LAYOUT("task", task_fields), // one of `tasks` follows
    [STRAIT_LAYOUT_TASK_REPLY] = STRAIT_LAYOUT("task_reply", task_reply_fields),
    [STRAIT_LAYOUT_COMMITMENT] = STRAIT_LAYOUT("commitment", commitment_fields),
    [STRAIT_LAYOUT_GIVE] = STRAIT_LAYOUT("give", give_fields),
    [STRAIT_LAYOUT_GIVEN] = STRAIT_LAYOUT("given", given_fields),
    [STRAIT_LAYOUT_RUN_STATUS] = STRAIT_LAYOUT("run_status", run_status_fields),
    [STRAIT_LAYOUT_WORK] = STRAIT_LAYOUT("work", work_fields),
};

static const strait_layout tasks[STRAIT_TASK_KINDS] = {
    [STRAIT_TASK_RELEASE] = {"release", NULL, 0},
    [STRAIT_TASK_ASSIGN] = STRAIT_LAYOUT("assign", assign),
    [STRAIT_TASK_LISTEN] = STRAIT_LAYOUT("listen", neighbours),
    [STRAIT_TASK_CONNECT] = STRAIT_LAYOUT("connect", neighbours),
    [STRAIT_TASK_RESTORE] = STRAIT_LAYOUT("restore", restore),
    [STRAIT_TASK_SNAPSHOT] = {"snapshot", NULL, 0},
    [STRAIT_TASK_REFUSE] = STRAIT_LAYOUT("refuse", refuse),
    [STRAIT_TASK_END] = {"end", NULL, 0},
    [STRAIT_TASK_AUDIT] = STRAIT_LAYOUT("audit", audit),
    [STRAIT_TASK_AUDIT_STEP] = STRAIT_LAYOUT("audit_step", audit_step),
    [STRAIT_TASK_AUDIT_END] = STRAIT_LAYOUT("audit_end", audit_end),
    [STRAIT_TASK_STAY] = STRAIT_LAYOUT("stay", stay),
};

/* Kinds that are not listed answer with the header alone, or not at all. */
static const strait_layout task_replies[STRAIT_TASK_KINDS] = {
    [STRAIT_TASK_ASSIGN] = STRAIT_LAYOUT("assign", assigned),
    [STRAIT_TASK_RESTORE] = STRAIT_LAYOUT("restore", restored),
    [STRAIT_TASK_AUDIT_STEP] = STRAIT_LAYOUT("audit_step", audited_step),
    [STRAIT_TASK_AUDIT_END] = STRAIT_LAYOUT("audit_end", audited),
};

const strait_layout *strait_task_layout(strait_task_kind kind) {
    return (int)kind > 0 && kind < STRAIT_TASK_KINDS ? &tasks[kind] : NULL;
}

const strait_layout *strait_task_reply_layout(strait_task_kind kind) {
    return (int)kind > 0 && kind < STRAIT_TASK_KINDS ? &task_replies[kind] : NULL;
}

int strait_task_is_answered(strait_task_kind kind) {
    return kind != STRAIT_TASK_RELEASE && kind != STRAIT_TASK_REFUSE && kind != STRAIT_TASK_END &&
           kind != STRAIT_TASK_STAY;
}

const strait_layout *strait_swarm_layout(int i) {
    return i >= 0 && i < STRAIT_LAYOUTS ? &layouts[i] : NULL;
}

/* ---- packing by table ---- */

/* The second table of messages that one table describes completely. */
static const strait_layout nothing = {"", NULL, 0};
static const strait_float_memory no_floats = {NULL, 0};

static strait_err malformed(const char *what) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a peer sent a malformed %s", what);
}

/* Packs the fields of `header` and then of `body`, both members of `object`. */
static strait_err pack(struct strait_msg_pool *pool, uint8_t type, const strait_layout *header,
                       const strait_layout *body, const void *object, struct strait_msg **out) {
    STRAIT_TRY(strait_msg_open(
        pool, type, strait_layout_bytes(header, object) + strait_layout_bytes(body, object), out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_layout_write(header, object, &w);
    strait_layout_write(body, object, &w);
    return STRAIT_OK;
}

/* A size or speed that a worker claims. An impossible value, also NaN, counts as unknown: it would
 * otherwise decide which workers are chosen. */
static double plausible(double value) {
    return value >= 0.0 && value < 1e30 ? value : 0.0;
}

/* Checks what later indexes arrays: the number of entries and the stage. */
static int is_snapshot_set(const strait_snapshot_set *set) {
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        if (set->steps[i] < 0) return 0;
    return set->n >= 0 && set->n <= STRAIT_SWARM_SNAPSHOTS && set->stage >= -1 &&
           set->stage < STRAIT_RUN_STAGES;
}

static int is_live_state(const strait_live_state *live) {
    return live->stage >= -1 && live->stage < STRAIT_RUN_STAGES && live->step >= -1 &&
           live->step < UINT32_MAX && live->first_kept >= 0;
}

static int is_inventory(const strait_snapshot_inventory *inventory) {
    return is_live_state(&inventory->live) && is_snapshot_set(&inventory->own) &&
           is_snapshot_set(&inventory->prev) && is_snapshot_set(&inventory->next);
}

/* ---- joining and heartbeats ---- */

strait_err strait_join_pack(struct strait_msg_pool *pool, const strait_join *join,
                            struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_JOIN, &layouts[STRAIT_LAYOUT_JOIN], &nothing, join, out);
}

strait_err strait_join_unpack(const struct strait_msg *msg, strait_join *out) {
    strait_reader r = {msg->body, msg->size, 0};
    strait_layout_read(&layouts[STRAIT_LAYOUT_JOIN], &r, no_floats, out);
    out->report.memory_bytes = plausible(out->report.memory_bytes);
    out->report.flops = plausible(out->report.flops);
    out->report.up_bps = plausible(out->report.up_bps);
    out->report.down_bps = plausible(out->report.down_bps);
    return r.is_short || r.left != 0 || !is_inventory(&out->inventory)
               ? malformed("request to join")
               : STRAIT_OK;
}

strait_err strait_heartbeat_pack(struct strait_msg_pool *pool, const strait_heartbeat *heartbeat,
                                 struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_HEARTBEAT, &layouts[STRAIT_LAYOUT_HEARTBEAT], &nothing, heartbeat,
                out);
}

strait_err strait_heartbeat_unpack(const struct strait_msg *msg, strait_heartbeat *out) {
    strait_reader r = {msg->body, msg->size, 0};
    strait_layout_read(&layouts[STRAIT_LAYOUT_HEARTBEAT], &r, no_floats, out);
    return r.is_short || r.left != 0 || !is_inventory(&out->inventory) ? malformed("heartbeat")
                                                                       : STRAIT_OK;
}

/* ---- tasks ---- */

strait_err strait_task_pack(struct strait_msg_pool *pool, const strait_task *task,
                            struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_TASK, &layouts[STRAIT_LAYOUT_TASK], &tasks[task->kind], task, out);
}

/* Crossings carry the step in 32 bits. */
static int is_step(int64_t step) {
    return step >= 0 && step < UINT32_MAX;
}

/* What a worker commits to has places for so many replicas of its stage. */
static int has_rows(const strait_task *task) {
    return !task->assign.commits ||
           task->assign.replicas.n[STRAIT_SIDE_SAME] <= STRAIT_WORK_REPLICAS;
}

/* Checks the fields that a worker uses as an index, a size or a step. */
static int is_task(const strait_task *task) {
    switch (task->kind) {
    case STRAIT_TASK_ASSIGN:
        return task->assign.stage >= 0 && task->assign.stage < STRAIT_RUN_STAGES &&
               task->assign.valid_windows >= 0 && has_rows(task) &&
               strlen(task->assign.run_text) < STRAIT_TASK_TEXT;
    case STRAIT_TASK_AUDIT:
        return task->audit.stage >= 0 && task->audit.stage < STRAIT_RUN_STAGES &&
               is_step(task->audit.step) && task->audit.valid_windows >= 0 &&
               task->audit.n_replicas >= 1 && task->audit.n_replicas <= STRAIT_WORK_REPLICAS &&
               strlen(task->audit.run_text) < STRAIT_TASK_TEXT;
    case STRAIT_TASK_AUDIT_STEP:
        return is_step(task->audit_step.step) && task->audit_step.owners.bytes <= STRAIT_GROUPS_MAX;
    case STRAIT_TASK_CONNECT: return task->neighbours.timeout_ms >= 0;
    case STRAIT_TASK_RESTORE:
        return task->restore.step >= 0 && (int)task->restore.source >= STRAIT_SWARM_FROM_SEED &&
               task->restore.source <= STRAIT_SWARM_FROM_REPLICA && task->restore.live_step >= 0;
    default: return 1;
    }
}

/* Trailing bytes are an error too: they would mean that the two sides disagree on the table. */
strait_err strait_task_unpack(struct strait_msg *msg, strait_task *out) {
    strait_reader r = {msg->body, msg->size, 0};
    memset(out, 0, sizeof *out);
    strait_layout_read(&layouts[STRAIT_LAYOUT_TASK], &r, no_floats, out);
    const strait_layout *body = strait_task_layout(out->kind);
    if (body != NULL) strait_layout_read(body, &r, no_floats, out);
    return body == NULL || r.is_short || r.left != 0 || !is_task(out) ? malformed("task")
                                                                      : STRAIT_OK;
}

strait_err strait_task_reply_pack(struct strait_msg_pool *pool, const strait_task_reply *reply,
                                  struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_TASK_REPLY, &layouts[STRAIT_LAYOUT_TASK_REPLY],
                &task_replies[reply->kind], reply, out);
}

strait_err strait_task_reply_unpack(struct strait_msg *msg, strait_task_reply *out) {
    strait_reader r = {msg->body, msg->size, 0};
    memset(out, 0, sizeof *out);
    strait_layout_read(&layouts[STRAIT_LAYOUT_TASK_REPLY], &r, no_floats, out);
    const strait_layout *body = strait_task_reply_layout(out->kind);
    if (body != NULL) strait_layout_read(body, &r, no_floats, out);
    return body == NULL || r.is_short || r.left != 0 ? malformed("reply to a task") : STRAIT_OK;
}

/* ---- snapshots ---- */

/* The bytes follow the table without a length: they are the rest of the message. */
strait_err strait_piece_pack(struct strait_msg_pool *pool, const strait_piece *piece,
                             struct strait_msg **out) {
    const strait_layout *layout = &layouts[STRAIT_LAYOUT_PIECE];
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_SNAPSHOT,
                               strait_layout_bytes(layout, piece) + piece->bytes, out));
    (*out)->priority = STRAIT_PRIORITY_ACTIVATION;
    (*out)->flags = piece->must_keep ? STRAIT_SNAPSHOT_KEEP : 0;
    strait_writer w = {(*out)->body, (*out)->size, 0};
    strait_layout_write(layout, piece, &w);
    if (piece->data != NULL) strait_writer_copy(&w, piece->data, piece->bytes);
    return STRAIT_OK;
}

strait_err strait_piece_unpack(const struct strait_msg *msg, strait_piece *out) {
    strait_reader r = {msg->body, msg->size, 0};
    *out = (strait_piece){.must_keep = (msg->flags & STRAIT_SNAPSHOT_KEEP) != 0};
    strait_layout_read(&layouts[STRAIT_LAYOUT_PIECE], &r, no_floats, out);
    out->data = r.at;
    out->bytes = r.left;
    if (r.is_short || out->stage < 0 || out->stage >= STRAIT_RUN_STAGES || out->step < 0 ||
        out->bytes == 0 || out->offset > out->total || out->bytes > out->total - out->offset)
        return malformed("piece of a snapshot");
    return STRAIT_OK;
}

strait_err strait_snapshot_request_pack(struct strait_msg_pool *pool,
                                        const strait_snapshot_request *request,
                                        struct strait_msg **out) {
    return pack(pool, STRAIT_MSG_SNAPSHOT_REQUEST, &layouts[STRAIT_LAYOUT_SNAPSHOT_REQUEST],
                &nothing, request, out);
}

strait_err strait_snapshot_request_unpack(const struct strait_msg *msg,
                                          strait_snapshot_request *out) {
    strait_reader r = {msg->body, msg->size, 0};
    strait_layout_read(&layouts[STRAIT_LAYOUT_SNAPSHOT_REQUEST], &r, no_floats, out);
    return r.is_short ? malformed("request for a snapshot") : STRAIT_OK;
}
