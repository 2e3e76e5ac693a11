/* auditors.c - spares that compute an interval once more: one task at a time, each after the reply
 * to the one before, so that no more than one step of crossings waits for a link. */
#include "base/clock.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#include <math.h>
#include <string.h>

enum {
    AHEAD = 8 * 1024 * 1024 // bytes of a snapshot queued for a link at once
};

/* The number of the attempt tells its replies from those of an earlier one. */
static void send_task(struct host *h, struct host_audit *a, strait_task *task) {
    struct connection *connection = strait_host_connection(h, a->auditor);
    struct strait_msg *msg = NULL;
    task->generation = h->coordinator.generation;
    task->sequence = a->sequence;
    a->awaited = (int)task->kind;
    a->heard_ns = strait_clock_ns();
    if (strait_task_pack(h->pool, task, &msg) != STRAIT_OK) return; // the audit times out
    if (connection != NULL) connection->n_owed++;
    strait_host_send(h, connection, &msg);
}

/* ---- choosing a spare ---- */

int strait_host_is_auditing(const struct host *h, int worker) {
    for (int i = 0; h->audits != NULL && i < STRAIT_AUDITS_OPEN; i++)
        if (h->audits->open[i].id != 0 && h->audits->open[i].auditor == worker) return 1;
    return 0;
}

/* Only the same kernels give the same bits. Other devices are compared among themselves. */
static int can_audit(struct host *h, int slot, const struct host_audit *a) {
    const strait_swarm_worker *worker = &h->coordinator.workers[slot];
    const double need = h->coordinator.config.need_bytes[a->evidence.spec.stage];
    char kernels[STRAIT_REPLAY_KERNELS];
    if (!worker->is_known || !worker->is_connected || worker->is_leaving ||
        worker->will_help >= 0 || strait_coordinator_stage_of(&h->coordinator, slot) >= 0)
        return 0;
    strait_replay_kernels(worker->report.device, kernels);
    return strcmp(kernels, a->kernels) == 0 && !strait_host_is_auditing(h, slot) &&
           strait_host_connection(h, slot) != NULL &&
           (worker->report.memory_bytes <= 0.0 || worker->report.memory_bytes >= need);
}

static void begin(struct host *h, struct host_audit *a, const strait_audit *audit) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    const int window = h->windows[spec->stage];
    strait_task task = {.kind = STRAIT_TASK_AUDIT,
                        .audit = {.stage = spec->stage,
                                  .step = spec->from,
                                  .n_slots = window > 0 ? window : 1,
                                  .valid_windows = strait_loader_valid_windows(h->executor->loader),
                                  .from_seed = spec->snapshot_bytes == 0,
                                  .n_replicas = a->shape.n_replicas,
                                  .digest = audit->start,
                                  .run_text = h->task_text}};
    a->next_step = spec->from;
    a->so_far = (strait_commitment){0};
    a->result = (strait_audit_result){0};
    a->blamed = 0;
    a->n_sent = 0;
    a->n_queued = a->n_crossed = 0;
    a->sequence = ++h->audits->n_attempts;
    send_task(h, a, &task);
}

/* Returns the slot of the spare that was chosen, of those that rest or of those that do not; -1:
 * there is none. */
static int choose(struct host *h, const struct host_audit *a, int rests, int64_t now_ns) {
    strait_fingerprint candidates[STRAIT_SWARM_WORKERS];
    int slots[STRAIT_SWARM_WORKERS];
    int n = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const strait_fingerprint *key = &h->coordinator.workers[i].key;
        if (!can_audit(h, i, a) || strait_host_audit_may_ask(h, key, now_ns) == rests) continue;
        candidates[n] = *key;
        slots[n++] = i;
    }
    const int chosen = strait_audits_assign(&h->audits->state, a->id, candidates, n, now_ns);
    return chosen >= 0 ? slots[chosen] : -1;
}

static void assign(struct host *h, struct host_audit *a, const strait_audit *audit,
                   int64_t now_ns) {
    a->auditor = choose(h, a, 0, now_ns);
    if (a->auditor < 0) a->auditor = choose(h, a, 1, now_ns);
    if (a->auditor >= 0) begin(h, a, audit);
}

/* ---- one step after the other ---- */

static strait_err send_crossings(struct host *h, struct host_audit *a, int64_t step) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    for (int side = 0; side < STRAIT_EVIDENCE_SNAPSHOT; side++)
        for (int m = 0; m < spec->groups.n_microbatches && spec->crossing_bytes[side] > 0; m++) {
            struct strait_msg *msg = NULL;
            STRAIT_TRY(strait_evidence_crossing(&a->evidence, h->pool, (strait_evidence_part)side,
                                                step, m, &msg));
            a->n_queued += (int64_t)msg->size;
            strait_host_send(h, strait_host_connection(h, a->auditor), &msg);
        }
    return STRAIT_OK;
}

static strait_err send_step(struct host *h, struct host_audit *a) {
    const int64_t step = a->next_step++;
    const struct host_audit_step *update = &a->steps[step - a->evidence.spec.from];
    strait_task task = {.kind = STRAIT_TASK_AUDIT_STEP,
                        .audit_step = {step, update->factor, update->is_skipped, {0}}};
    if (a->shape.n_replicas > 1)
        task.audit_step.owners = (strait_view){
            a->work[step - a->evidence.spec.from].owners[a->evidence.spec.stage].replica,
            (size_t)a->shape.n_groups};
    STRAIT_TRY(strait_host_send_step_ids(h, a->auditor, a->evidence.spec.stage, step));
    STRAIT_TRY(send_crossings(h, a, step));
    send_task(h, a, &task);
    return STRAIT_OK;
}

static strait_err send_end(struct host *h, struct host_audit *a) {
    const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
    const int is_tolerant = a->kernels[0] == '\0';
    if (is_tolerant) STRAIT_TRY(strait_host_audit_open_end(h, a, audit->n_votes));
    send_task(h, a, &(strait_task){.kind = STRAIT_TASK_AUDIT_END, .audit_end = {is_tolerant}});
    return STRAIT_OK;
}

static void lost(struct host *h, struct host_audit *a, int64_t now_ns) {
    strait_verdict verdict;
    strait_host_audit_excuse_end(h, a);
    a->auditor = -1;
    strait_audits_lost(&h->audits->state, a->id, now_ns, &verdict);
    strait_host_audit_judge(h, &verdict);
}

/* Gives a result that is near enough to an earlier one the digests of that one. */
static strait_err round_result(struct host *h, const struct host_audit *a,
                               const strait_audit *audit, strait_audit_result *result) {
    const struct strait_evidence *own = &a->ends[audit->n_votes];
    const struct strait_evidence *start = a->evidence.spec.snapshot_bytes > 0 ? &a->evidence : NULL;
    if (!strait_evidence_has(own, STRAIT_EVIDENCE_SNAPSHOT))
        return STRAIT_FAIL(STRAIT_EPROTO, "an auditor did not send its snapshot");
    for (int i = 0; i < audit->n_votes; i++) {
        double distance = HUGE_VAL;
        STRAIT_TRY(
            strait_evidence_distance(&h->executor->plan, &a->ends[i], own, start, &distance));
        strait_host_note(h, "audit of stage %d, steps %lld to %lld: %.3g from the result of %s",
                         audit->stage, (long long)audit->commitment.from,
                         (long long)audit->commitment.to, distance,
                         i == 0 ? "the owner" : "another spare");
        if (!(distance <= STRAIT_AUDIT_TOLERANCE)) continue;
        *result = audit->votes[i].result;
        return STRAIT_OK;
    }
    return STRAIT_OK;
}

static void vote(struct host *h, struct host_audit *a, const strait_fingerprint *key,
                 strait_audit_result *result) {
    const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
    strait_verdict verdict;
    if (a->kernels[0] == '\0' && round_result(h, a, audit, result) != STRAIT_OK) {
        strait_host_note(h, "audit: %s", strait_err_detail());
        lost(h, a, strait_clock_ns());
        return;
    }
    /* Of replicas by what the spare said of each step: so whom it contradicts is what it votes for.
     */
    if (a->shape.n_replicas > 1) {
        a->result.snapshot = result->snapshot;
        *result = a->result;
    }
    a->auditor = -1;
    strait_host_audit_computed(h, key);
    strait_audits_vote(&h->audits->state, a->id, key, result, a->blamed, strait_clock_ns(),
                       &verdict);
    strait_host_audit_judge(h, &verdict);
}

static struct host_audit *find_attempt(struct host *h, int worker, uint32_t sequence) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        struct host_audit *a = &h->audits->open[i];
        if (a->id != 0 && a->auditor == worker && a->sequence == sequence) return a;
    }
    return NULL;
}

void strait_host_audit_interrupt(struct host *h) {
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        strait_host_audit_excuse_end(h, &h->audits->open[i]);
        h->audits->open[i].auditor = -1;
        strait_audits_release(&h->audits->state, h->audits->open[i].id, strait_clock_ns());
    }
}

/* A spare that fails, for want of memory for example, is not at fault, but others are asked first.
 */
int strait_host_audit_reply(struct host *h, struct connection *connection,
                            const strait_task_reply *reply) {
    if (reply->kind < STRAIT_TASK_AUDIT) return 0;
    struct host_audit *a = h->audits != NULL ? find_attempt(h, connection->worker, reply->sequence)
                                             : NULL;
    const strait_swarm_worker *worker = &h->coordinator.workers[connection->worker];
    if (a == NULL || a->awaited != (int)reply->kind || h->executor == NULL) return 1; // late
    strait_err err = reply->err;
    if (err != STRAIT_OK)
        strait_host_note(h, "%s: cannot audit stage %d: %s (its own log says more)",
                         worker->report.name, a->evidence.spec.stage, strait_err_text(err));
    if (err == STRAIT_OK && reply->kind == STRAIT_TASK_AUDIT_END) {
        strait_audit_result result = reply->audit_end;
        vote(h, a, &worker->key, &result);
        return 1;
    }
    if (err == STRAIT_OK && reply->kind == STRAIT_TASK_AUDIT_STEP)
        err = strait_host_work_audited(a, a->next_step - 1, &reply->audit_step.work);
    if (err == STRAIT_OK && a->next_step < a->evidence.spec.to)
        err = send_step(h, a);
    else if (err == STRAIT_OK)
        err = send_end(h, a);
    if (reply->err != STRAIT_OK) strait_host_audit_rest(h, &worker->key, strait_clock_ns());
    if (err != STRAIT_OK) lost(h, a, strait_clock_ns());
    return 1;
}

/* ---- time ---- */

static void continue_snapshot(struct host *h, struct host_audit *a) {
    struct connection *connection = strait_host_connection(h, a->auditor);
    while (a->awaited == STRAIT_TASK_AUDIT && a->n_sent < a->evidence.spec.snapshot_bytes &&
           connection != NULL && connection->out.n_bytes < AHEAD) {
        struct strait_msg *msg = NULL;
        if (strait_evidence_piece(&a->evidence, h->pool, &a->n_sent, &msg) != STRAIT_OK) {
            strait_host_audit_drop(h, a->id, NULL, "the host cannot read what it stored");
            return;
        }
        a->n_queued += (int64_t)msg->size;
        strait_host_send(h, connection, &msg);
        connection = strait_host_connection(h, a->auditor);
    }
}

/* The auditor has left, or has a stage now, which is not its own doing. */
static void count_gone(struct host *h, const strait_fingerprint *key, int64_t now_ns) {
    const int slot = strait_coordinator_find(&h->coordinator, key);
    if (slot < 0 || !h->coordinator.workers[slot].is_connected)
        strait_host_audit_rest(h, key, now_ns);
}

/* The slot may have another worker by now. */
static int is_still_there(const struct host *h, const struct host_audit *a,
                          const strait_audit *audit) {
    const strait_swarm_worker *worker = &h->coordinator.workers[a->auditor];
    return worker->is_known && worker->is_connected &&
           strait_coordinator_stage_of(&h->coordinator, a->auditor) < 0 &&
           strait_fingerprint_equal(&worker->key, &audit->auditor);
}

/* Returns whether all who still have to give something serve the stage that they had. */
static int is_given(const struct host *h, const struct host_audit *a) {
    static const int sides[STRAIT_EVIDENCE_PARTS] = {-1, 1, 0};
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        for (int i = 0; i < a->givers[part].n; i++) {
            const int slot = strait_coordinator_find(&h->coordinator, &a->givers[part].keys[i]);
            if (!strait_host_audit_lacks(a, (strait_evidence_part)part, i)) continue;
            if (slot < 0 || !h->coordinator.workers[slot].is_connected ||
                strait_coordinator_stage_of(&h->coordinator, slot) !=
                    a->evidence.spec.stage + sides[part])
                return 0;
        }
    return 1;
}

/* Returns a worker that left before it gave what it was asked for; NULL: it was given another
 * stage, which is not its fault. */
static const strait_fingerprint *find_leaver(const struct host *h, const struct host_audit *a) {
    for (int part = 0; part < STRAIT_EVIDENCE_PARTS; part++)
        for (int i = 0; i < a->givers[part].n; i++) {
            const int slot = strait_coordinator_find(&h->coordinator, &a->givers[part].keys[i]);
            if (strait_host_audit_lacks(a, (strait_evidence_part)part, i) &&
                (slot < 0 || !h->coordinator.workers[slot].is_connected))
                return &a->givers[part].keys[i];
        }
    return NULL;
}

/* Gives up an audit whose evidence will not come. Returns whether it was that. */
static int end_incomplete(struct host *h, const struct host_audit *a, int64_t asked_ns) {
    if (!a->is_overwritten && is_given(h, a)) return 0;
    const strait_fingerprint *leaver = a->is_overwritten ? NULL : find_leaver(h, a);
    const strait_fingerprint key = leaver != NULL ? *leaver : (strait_fingerprint){{0}};
    const int is_refusal = leaver != NULL && !strait_host_audit_excuses_leave(h, &key, asked_ns) &&
                           strait_host_audit_counts(h, &key);
    strait_host_audit_drop(h, a->id, is_refusal ? &key : NULL,
                           a->is_overwritten
                               ? "its steps are computed again"
                               : "left before it sent the evidence that an audit requested");
    return 1;
}

void strait_host_audit_tick(struct host *h, int64_t now_ns) {
    strait_verdict verdict;
    if (h->audits == NULL || h->executor == NULL) return;
    h->audits->n_ticks++;
    strait_host_audit_end_overdue(h, now_ns);
    do {
        strait_audits_tick(&h->audits->state, now_ns, &verdict);
        strait_host_audit_judge(h, &verdict);
    } while (verdict.kind != STRAIT_VERDICT_NONE);
    for (int i = 0; i < STRAIT_AUDITS_OPEN; i++) {
        struct host_audit *a = &h->audits->open[i];
        const strait_audit *audit = strait_audits_find(&h->audits->state, a->id);
        if (a->id == 0 || audit == NULL) continue;
        if (audit->phase != STRAIT_AUDIT_RUNNING) a->auditor = -1;
        if (audit->phase == STRAIT_AUDIT_GATHERING && end_incomplete(h, a, audit->since_ns))
            continue;
        if (audit->phase == STRAIT_AUDIT_WAITING) assign(h, a, audit, now_ns);
        if (a->auditor < 0) continue;
        if (is_still_there(h, a, audit)) continue_snapshot(h, a);
        if (a->id == 0) continue; // the audit was dropped
        const strait_fingerprint key = audit->auditor;
        const int is_gone = !is_still_there(h, a, audit);
        if (!is_gone && !strait_host_audit_is_silent(h, a, now_ns)) continue;
        lost(h, a, now_ns);
        if (is_gone)
            count_gone(h, &key, now_ns);
        else
            strait_host_audit_count_silence(h, &key, now_ns);
    }
}
