/* gather.c - commitments, and what audits need: a snapshot of the owner, crossings of its
 * neighbours. Whatever was not asked for is ignored. */
#include "base/alloc.h"
#include "stage/boundary/boundary.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/replicas.h"

#include <string.h>

static strait_err on_commitment(struct host *h, struct connection *connection,
                                const struct strait_msg *msg) {
    const int stage = strait_coordinator_stage_of(&h->coordinator, connection->worker);
    const int replica = h->coordinator.workers[connection->worker].replica;
    strait_commitment_message message;
    STRAIT_TRY(strait_commitment_unpack(msg, &message));
    if (h->audits == NULL || h->executor == NULL || stage < 0 || message.stage != stage)
        return STRAIT_OK; // late
    strait_host_audit_replica(h, stage, replica, &message);
    if (replica > 0) return STRAIT_OK;
    const char *fault = strait_audits_commit(&h->audits->state, stage, message.generation,
                                             &message.interval);
    if (fault == NULL) return STRAIT_OK;
    strait_host_note(h, "%s, stage %d: %s", h->coordinator.workers[connection->worker].report.name,
                     stage, fault);
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = connection->worker});
    return STRAIT_OK;
}

struct host_audit *strait_host_audit_find(struct host *h, uint32_t id) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        if (id != 0 && h->audits->open[i].id == id) return &h->audits->open[i];
    return NULL;
}

/* ---- asking ---- */

static void ask(struct host *h, struct host_audit *a, strait_evidence_part part) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    const strait_give give = {.audit = a->id,
                              .from = spec->from,
                              .to = spec->to,
                              .wants_snapshot = part == STRAIT_EVIDENCE_SNAPSHOT,
                              .wants_prev = part == STRAIT_EVIDENCE_NEXT,
                              .wants_next = part == STRAIT_EVIDENCE_PREV};
    if (strait_evidence_has(&a->evidence, part)) return; // there is nothing of it
    for (int i = 0; i < a->givers[part].n; i++) {
        const int giver = strait_coordinator_find(&h->coordinator, &a->givers[part].keys[i]);
        struct strait_msg *msg = NULL;
        strait_host_audit_asked(h, &a->givers[part].keys[i]);
        if (strait_give_pack(h->pool, &give, &msg) == STRAIT_OK)
            strait_host_send(h, strait_host_connection(h, giver), &msg);
    }
}

strait_err strait_host_audit_open_end(struct host *h, struct host_audit *a, int i) {
    const strait_evidence_spec *of = &a->evidence.spec;
    strait_evidence_spec spec = {.folder = of->folder,
                                 .stage = of->stage,
                                 .from = of->to,
                                 .to = of->to,
                                 .groups = of->groups};
    STRAIT_TRY(
        strait_snapshot_expected_bytes(&h->executor->plan, spec.stage, &spec.snapshot_bytes));
    strait_evidence_fini(&a->ends[i]); // of an attempt that failed
    a->n_due_ends = a->n_asked_ends = strait_host_audit_pieces(spec.snapshot_bytes);
    return strait_evidence_init(&a->ends[i], &spec);
}

static int is_tolerant(const struct host_audit *a) {
    return a->kernels[0] == '\0';
}

/* The owner's own snapshot at the end, where digests cannot be compared. */
static void ask_end(struct host *h, const struct host_audit *a) {
    const int64_t to = a->evidence.spec.to;
    const strait_give give = {.audit = a->id, .from = to, .to = to, .wants_snapshot = 1};
    const int giver = strait_coordinator_find(&h->coordinator,
                                              &a->givers[STRAIT_EVIDENCE_SNAPSHOT].keys[0]);
    struct strait_msg *msg = NULL;
    if (is_tolerant(a) && strait_give_pack(h->pool, &give, &msg) == STRAIT_OK)
        strait_host_send(h, strait_host_connection(h, giver), &msg);
}

static strait_err describe(const struct host *h, const strait_audit *audit,
                           strait_evidence_spec *out) {
    const strait_run_plan *plan = &h->executor->plan;
    const int stage = audit->stage;
    *out = (strait_evidence_spec){.folder = h->spec->folder,
                                  .stage = stage,
                                  .from = audit->commitment.from,
                                  .to = audit->commitment.to,
                                  .groups = plan->groups};
    if (out->from > 0 || h->coordinator.has_first)
        STRAIT_TRY(strait_snapshot_expected_bytes(plan, stage, &out->snapshot_bytes));
    if (stage > 0) {
        const strait_codec_spec codec = strait_run_plan_codec(plan, stage - 1, 1);
        out->crossing_bytes[0] = strait_codec_wire_bytes(&codec, STRAIT_FORWARD);
    }
    if (stage + 1 < plan->n_stages) {
        const strait_codec_spec codec = strait_run_plan_codec(plan, stage, 1);
        out->crossing_bytes[1] = strait_codec_wire_bytes(&codec, STRAIT_BACKWARD);
    }
    return STRAIT_OK;
}

/* The updates of the interval, which the host decided itself. */
static strait_err copy_steps(const struct host *h, struct host_audit *a) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    STRAIT_TRY(strait_alloc((size_t)(spec->to - spec->from), sizeof *a->steps, "steps of an audit",
                            (void **)&a->steps));
    for (int64_t step = spec->from; step < spec->to; step++) {
        const struct host_audit_step *from = &h->audits->steps[step % STRAIT_AUDIT_STEPS];
        if (from->step != step)
            return STRAIT_FAIL(STRAIT_EINVAL, "step %lld is not known", (long long)step);
        a->steps[step - spec->from] = *from;
    }
    return STRAIT_OK;
}

/* All replicas of a stage; of the one that is audited the owner, which has its snapshots. */
static void list_givers(const struct strait_coordinator *c, int stage, int is_audited,
                        struct host_givers *out) {
    if (stage < 0 || stage >= c->config.n_stages) return;
    out->n = is_audited ? 1 : strait_coordinator_n_replicas(c, stage);
    for (int i = 0; i < out->n; i++)
        out->keys[i] = c->workers[strait_coordinator_replica(c, stage, i)].key;
}

static strait_err open_audit(struct host *h, const strait_audit *audit, struct host_audit *a) {
    const struct strait_coordinator *c = &h->coordinator;
    const int stage = audit->stage;
    strait_evidence_spec spec;
    *a = (struct host_audit){.id = audit->id, .auditor = -1};
    strait_replay_kernels(strait_host_owner(h, stage)->report.device, a->kernels);
    list_givers(c, stage, 1, &a->givers[STRAIT_EVIDENCE_SNAPSHOT]);
    list_givers(c, stage - 1, 0, &a->givers[STRAIT_EVIDENCE_PREV]);
    list_givers(c, stage + 1, 0, &a->givers[STRAIT_EVIDENCE_NEXT]);
    STRAIT_TRY(describe(h, audit, &spec));
    STRAIT_TRY(strait_evidence_init(&a->evidence, &spec));
    STRAIT_TRY(strait_host_work_copy(h, a));
    strait_host_audit_expect(a);
    if (is_tolerant(a)) STRAIT_TRY(strait_host_audit_open_end(h, a, 0));
    return copy_steps(h, a);
}

static void check_complete(struct host *h, struct host_audit *a);

void strait_host_audit_gather(struct host *h, const strait_audit *audit) {
    struct host_audit *a = NULL;
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++)
        if (h->audits->open[i].id == 0) a = &h->audits->open[i];
    if (a == NULL) return; // there are as many as can be open
    if (open_audit(h, audit, a) != STRAIT_OK) {
        strait_host_note(h, "audit of stage %d: %s", audit->stage, strait_err_detail());
        strait_host_audit_drop(h, audit->id, NULL, "the host cannot store what it needs");
        return;
    }
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        ask(h, a, (strait_evidence_part)part);
    ask_end(h, a);
    check_complete(h, a);
}

/* ---- receiving ---- */

int strait_host_audit_lacks(const struct host_audit *a, strait_evidence_part part, int giver) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    if (strait_evidence_has(&a->evidence, part)) return 0;
    if (part == STRAIT_EVIDENCE_SNAPSHOT) return 1;
    for (int64_t step = spec->from; step < spec->to; step++)
        for (int m = 0; m < spec->groups.n_microbatches; m++)
            if (strait_host_work_giver(a, part, step, m) == giver &&
                !strait_evidence_has_crossing(&a->evidence, part, step, m))
                return 1;
    return 0;
}

/* Returns whether the worker still has to give something of a part. */
static int is_giver(const struct host *h, const struct connection *connection,
                    const struct host_audit *a, strait_evidence_part part) {
    const int giver = strait_host_audit_giver(h, connection, a, part);
    return giver >= 0 && strait_host_audit_lacks(a, part, giver);
}

static int is_owner(const struct host *h, const struct connection *connection,
                    const struct host_audit *a) {
    return strait_host_audit_giver(h, connection, a, STRAIT_EVIDENCE_SNAPSHOT) >= 0;
}

/* Whoever gave something else than both ends stated; the bytes cannot have changed on the way. */
static const strait_fingerprint *find_false_giver(const struct host_audit *a,
                                                  strait_evidence_part part) {
    const int is_prev = part == STRAIT_EVIDENCE_PREV;
    const strait_work_crossing received = is_prev ? STRAIT_WORK_RECEIVED_PREV
                                                  : STRAIT_WORK_RECEIVED_NEXT;
    const strait_evidence_spec *spec = &a->evidence.spec;
    strait_digest groups[STRAIT_GROUPS_MAX];
    for (int64_t step = spec->from; a->work != NULL && step < spec->to; step++) {
        const strait_digest *row = a->work[step - spec->from].rows[spec->stage];
        if (part == STRAIT_EVIDENCE_SNAPSHOT ||
            strait_evidence_groups(&a->evidence, part, step, groups) != STRAIT_OK)
            break;
        for (int g = 0; g < spec->groups.n_groups; g++)
            if (!strait_digest_equal(&groups[g], &row[strait_work_at(a->shape, received, g)]))
                return &a->givers[part].keys[strait_host_work_giver(
                    a, part, step, strait_groups_first(&spec->groups, g))];
    }
    return &a->givers[part].keys[0];
}

/* Each part is what both of its ends stated. */
static void check_complete(struct host *h, struct host_audit *a) {
    const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
    if (audit == NULL || audit->phase != STRAIT_AUDIT_GATHERING) return;
    const strait_digest *expected[STRAIT_EVIDENCE_PARTS] = {
        &audit->commitment.received_prev, &audit->commitment.received_next, &audit->start};
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        if (!strait_evidence_has(&a->evidence, (strait_evidence_part)part)) return;
    if (is_tolerant(a) && !strait_evidence_has(&a->ends[0], STRAIT_EVIDENCE_SNAPSHOT)) return;
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++) {
        const int is_end_wrong = part == STRAIT_EVIDENCE_SNAPSHOT && is_tolerant(a) &&
                                 !strait_digest_equal(&a->ends[0].digests[part],
                                                      &audit->commitment.snapshot);
        if (strait_digest_equal(&a->evidence.digests[part], expected[part]) && !is_end_wrong)
            continue;
        const strait_fingerprint key = *find_false_giver(a, (strait_evidence_part)part);
        const int giver = strait_coordinator_find(&h->coordinator, &key);
        strait_host_audit_drop(h, a->id, &key, "gave other bytes than it had stated");
        if (giver >= 0)
            strait_host_feed_coordinator(
                h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = giver});
        return;
    }
    strait_host_audit_gave(h, a);
    strait_audits_gathered(&h->audits->state, a->id, h->coordinator.now_ns);
}

/* A disk that is full costs the audit, not the run. */
static void took(struct host *h, struct host_audit *a, strait_err err) {
    if (err == STRAIT_OK)
        check_complete(h, a);
    else if (err != STRAIT_EPROTO) {
        strait_host_note(h, "audit: %s", strait_err_detail());
        strait_host_audit_drop(h, a->id, NULL, "the host cannot store what it needs");
    }
}

/* Returns whether a crossing is one that this giver sent to the stage. */
static int is_asked(const struct host_audit *a, strait_evidence_part part, int giver,
                    const struct strait_msg *msg) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    return (int64_t)msg->step >= spec->from && (int64_t)msg->step < spec->to &&
           msg->microbatch < spec->groups.n_microbatches &&
           strait_host_work_giver(a, part, msg->step, msg->microbatch) == giver;
}

static void on_crossing(struct host *h, struct connection *connection,
                        const struct strait_msg *msg) {
    for (int i = 0; h->audits != NULL && i < STRAIT_AUDITS_OPEN; i++)
        for (int part = 0; part < STRAIT_EVIDENCE_SNAPSHOT; part++) {
            struct host_audit *a = &h->audits->open[i];
            const int giver = strait_host_audit_giver(h, connection, a, (strait_evidence_part)part);
            if (giver < 0 || !is_asked(a, (strait_evidence_part)part, giver, msg)) continue;
            const strait_err err = strait_evidence_add_crossing(&a->evidence,
                                                                (strait_evidence_part)part, msg);
            if (err == STRAIT_EPROTO) continue; // perhaps of another audit
            strait_host_audit_heard(h, connection->worker, msg->size);
            took(h, a, err);
            return;
        }
}

/* Returns where a piece belongs: to the beginning or the end of the owner, or to an auditor's end;
 * NULL: to nothing of this audit. */
static struct strait_evidence *piece_of(const struct host *h, const struct connection *connection,
                                        struct host_audit *a, const strait_piece *piece) {
    const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
    if (a->id == 0 || audit == NULL) return NULL;
    if (a->auditor == connection->worker && a->awaited == STRAIT_TASK_AUDIT_END &&
        strait_host_audit_is_open(&a->ends[audit->n_votes]))
        return &a->ends[audit->n_votes];
    if (!is_owner(h, connection, a) || !piece->must_keep) return NULL;
    if (strait_host_audit_is_open(&a->ends[0]) && piece->step == a->evidence.spec.to)
        return &a->ends[0];
    return strait_evidence_has(&a->evidence, STRAIT_EVIDENCE_SNAPSHOT) ? NULL : &a->evidence;
}

int strait_host_audit_piece(struct host *h, struct connection *connection,
                            const strait_piece *piece) {
    for (int i = 0; h->audits != NULL && i < STRAIT_AUDITS_OPEN; i++) {
        struct host_audit *a = &h->audits->open[i];
        struct strait_evidence *to = piece_of(h, connection, a, piece);
        if (to == NULL) continue;
        const strait_err err = strait_evidence_add_piece(to, piece);
        if (err == STRAIT_EPROTO) continue;
        strait_host_audit_heard(h, connection->worker, piece->bytes);
        if (a->auditor == connection->worker) a->n_queued += (int64_t)piece->bytes;
        took(h, a, err);
        return 1;
    }
    return 0;
}

/* Returns whether the owner says that it has not got its snapshot at the end any more. */
static int lacks_end(const struct host *h, const struct connection *connection,
                     const struct host_audit *a, const strait_given *given) {
    return given->err != STRAIT_OK && is_owner(h, connection, a) &&
           strait_host_audit_is_open(&a->ends[0]);
}

/* It comes last, so that nothing is missing after it. An owner knows that it is audited: once it
 * has given all, its word does not end that. */
static strait_err on_given(struct host *h, struct connection *connection,
                           const struct strait_msg *msg) {
    strait_given given;
    STRAIT_TRY(strait_given_unpack(msg, &given));
    struct host_audit *a = h->audits != NULL ? strait_host_audit_find(h, given.audit) : NULL;
    if (a == NULL) return STRAIT_OK; // late
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        if (is_giver(h, connection, a, (strait_evidence_part)part) ||
            (part == STRAIT_EVIDENCE_SNAPSHOT && lacks_end(h, connection, a, &given))) {
            const strait_fingerprint key = h->coordinator.workers[connection->worker].key;
            strait_host_audit_drop(h, a->id, &key,
                                   part == STRAIT_EVIDENCE_SNAPSHOT
                                       ? "no longer has the snapshot"
                                       : "no longer has the crossings");
            return STRAIT_OK;
        }
    return STRAIT_OK;
}

strait_err strait_host_audit_message(struct host *h, struct connection *connection,
                                     const struct strait_msg *msg) {
    switch (msg->type) {
    case STRAIT_MSG_COMMITMENT: return on_commitment(h, connection, msg);
    case STRAIT_MSG_WORK: return strait_host_audit_work(h, connection, msg);
    case STRAIT_MSG_GIVEN: return on_given(h, connection, msg);
    case STRAIT_MSG_CROSSING:
        on_crossing(h, connection, msg);
        return STRAIT_OK; // what was not asked for counts against the rate limit
    default: return STRAIT_FAIL(STRAIT_EPROTO, "an unknown message of type %d", msg->type);
    }
}
