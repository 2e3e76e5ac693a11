/* work.c - what the workers of all stages state about each step, for audits.
 *
 * Everything that passes between two of them is stated by both, and compared before the step is
 * applied. If it differs, one of the two lies and nobody can tell which: the step is computed again
 * without further replicas or, where there are none, with a spare in place of the receiver. What
 * remains is what a worker itself computed, and that is what audits compare: see
 * strait_work_blame. */
#include "base/alloc.h"
#include "swarm/host/audit/driver.h"
#include "swarm/host/state.h"

#include <string.h>

/* What one worker stated last. */
struct stated {
    int64_t step; // -1: nothing
    uint32_t generation;
    strait_digest row[STRAIT_WORK_MAX];
};

struct host_statements {
    struct stated *stated; // by member of the plan
    int n_members;         // most that it has
    /* The interval in progress, from h->audits->state.from on. */
    int64_t n_steps;                           // that all have stated
    strait_commitment sums[STRAIT_RUN_STAGES]; // of the crossings in them
    strait_audit_result results[STRAIT_RUN_STAGES];
    struct host_work_step steps[STRAIT_AUDIT_ROWS]; // where stages have replicas
    /* Whether all replicas had the same state when it began. Who computes from another one could
     * not be told from a liar. */
    int is_agreed;
    struct {
        int64_t to; // -1: it has not committed
        strait_digest snapshot;
    } ends[STRAIT_RUN_STAGES][STRAIT_WORK_REPLICAS];
};

_Static_assert((int)STRAIT_WORK_REPLICAS == (int)STRAIT_SWARM_REPLICAS, "rows have all replicas");
_Static_assert((int)STRAIT_WORK_REPLICAS == (int)STRAIT_SUMS_REPLICAS, "rows have all sums");

int strait_host_work_is_shared(const struct host *h) {
    return h->executor->plan.n_members > h->executor->plan.n_stages;
}

static strait_work_shape shape_of(const struct host *h, int stage) {
    const strait_run_plan *plan = &h->executor->plan;
    return (strait_work_shape){.n_groups = plan->groups.n_groups,
                               .n_replicas = plan->replicas[stage],
                               .has_prev = stage > 0,
                               .has_next = stage + 1 < plan->n_stages};
}

static const char *name_of(const struct host *h, int slot) {
    return slot >= 0 ? h->coordinator.workers[slot].report.name : "a worker that has left";
}

/* ---- what is stated ---- */

static strait_err open_work(struct host *h) {
    const int n = h->coordinator.config.n_stages * STRAIT_SWARM_REPLICAS;
    if (h->audits->work != NULL) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *h->audits->work, "audits", (void **)&h->audits->work));
    STRAIT_TRY(strait_alloc((size_t)n, sizeof(struct stated), "statements of replicas",
                            (void **)&h->audits->work->stated));
    h->audits->work->n_members = n;
    return STRAIT_OK;
}

static void free_step(struct host_work_step *step, int n_stages) {
    for (int i = 0; step->rows != NULL && i < n_stages; i++)
        strait_alloc_free(step->rows[i]);
    strait_alloc_free(step->rows);
    strait_alloc_free(step->owners);
    *step = (struct host_work_step){0};
}

void strait_host_work_close(struct host *h) {
    if (h->audits->work == NULL) return;
    strait_host_work_begin(h, 0);
    strait_alloc_free(h->audits->work->stated);
    strait_alloc_free(h->audits->work);
    h->audits->work = NULL;
}

strait_err strait_host_audit_work(struct host *h, struct connection *connection,
                                  const struct strait_msg *msg) {
    const struct strait_coordinator *c = &h->coordinator;
    const int stage = strait_coordinator_stage_of(c, connection->worker);
    strait_work_message message;
    STRAIT_TRY(strait_work_unpack(msg, &message));
    if (h->audits == NULL || h->executor == NULL || stage < 0 || message.stage != stage ||
        message.generation != c->generation || c->phase < STRAIT_PHASE_READY)
        return STRAIT_OK; // late
    STRAIT_TRY(open_work(h));
    const int member = strait_run_plan_member(&h->executor->plan, stage,
                                              c->workers[connection->worker].replica);
    if (member >= h->audits->work->n_members) return STRAIT_OK;
    struct stated *stated = &h->audits->work->stated[member];
    STRAIT_TRY(strait_work_read(shape_of(h, stage), &message.row, stated->row));
    stated->step = message.step;
    stated->generation = message.generation;
    return STRAIT_OK;
}

void strait_host_audit_replica(struct host *h, int stage, int replica,
                               const strait_commitment_message *message) {
    if (open_work(h) != STRAIT_OK || message->generation != h->coordinator.generation) return;
    h->audits->work->ends[stage][replica].to = message->interval.to;
    h->audits->work->ends[stage][replica].snapshot = message->interval.snapshot;
}

/* ---- a step ---- */

/* The coordinator may have abandoned the generation. */
static strait_err again(struct host *h) {
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

/* A violation by a replica that did not `what` what it computed. */
static void count_missing(struct host *h, int stage, int replica, const char *what) {
    const int slot = strait_coordinator_replica(&h->coordinator, stage, replica);
    strait_host_note(h, "%s, stage %d: did not %s what it computed", name_of(h, slot), stage, what);
    if (slot >= 0)
        strait_host_feed_coordinator(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = slot});
}

/* Owners that are the only ones of their stages are handled like neighbours that reject each
 * other's values: without a change of one of them the next attempt could end in the same way. */
static strait_err contradict(struct host *h, int64_t step, int receiver, int sender) {
    strait_swarm_event event = {
        .kind = STRAIT_SWARM_CONTRADICTION, .worker = receiver, .successor = sender};
    strait_host_note(h, "step %lld: %s and %s contradict each other about what they exchanged",
                     (long long)step, name_of(h, receiver), name_of(h, sender));
    if (receiver >= 0 && sender >= 0 && !strait_host_work_is_shared(h))
        event = (strait_swarm_event){.kind = STRAIT_SWARM_DISPUTE,
                                     .worker = receiver,
                                     .stage = h->coordinator.workers[sender].stage};
    strait_host_feed_coordinator(h, &event);
    return again(h);
}

static strait_err open_step(const struct host *h, struct host_work_step *out) {
    const strait_run_plan *plan = &h->executor->plan;
    const size_t n = (size_t)plan->n_stages;
    STRAIT_TRY(strait_alloc(n, sizeof *out->owners, "work of a step", (void **)&out->owners));
    STRAIT_TRY(strait_alloc(n, sizeof *out->rows, "work of a step", (void **)&out->rows));
    for (int i = 0; i < plan->n_stages; i++)
        STRAIT_TRY(strait_alloc((size_t)strait_work_digests(shape_of(h, i)), sizeof **out->rows,
                                "work of a step", (void **)&out->rows[i]));
    return STRAIT_OK;
}

static const struct stated *stated_by(const struct host *h, int stage, int replica) {
    return &h->audits->work->stated[strait_run_plan_member(&h->executor->plan, stage, replica)];
}

/* Puts together what the replicas of a stage stated. STRAIT_EAGAIN: one of them did not. */
static strait_err merge(struct host *h, int64_t step, int stage, struct host_work_step *out) {
    const strait_run_plan *plan = &h->executor->plan;
    const strait_work_shape shape = shape_of(h, stage);
    const int first = strait_run_plan_member(plan, stage, 0);
    const strait_stage_reply *reply = &h->work.channel.replies.items[first];
    out->owners[stage] = h->work.queue[first].gradients.owners[STRAIT_SIDE_SAME];
    for (int k = 0; k < plan->replicas[stage]; k++) {
        const struct stated *stated = stated_by(h, stage, k);
        if (stated->step != step || stated->generation != h->coordinator.generation) {
            count_missing(h, stage, k, "state");
            return again(h);
        }
        strait_work_merge(shape, &out->owners[stage], k, stated->row, out->rows[stage]);
    }
    return strait_commitment_add_report(&out->rows[stage][strait_work_report(shape)], step,
                                        reply->gradients.loss_sum, reply->gradients.squares.data,
                                        reply->gradients.squares.n);
}

/* Compares what the two ends of the boundary after a stage state about one direction. Returns a
 * group of which they differ; -1: none. */
static int find_group(const struct host *h, const struct host_work_step *work, int stage,
                      int is_forward) {
    const strait_work_shape prev = shape_of(h, stage), next = shape_of(h, stage + 1);
    for (int g = 0; g < prev.n_groups; g++) {
        const int at = strait_work_at(
            prev, is_forward ? STRAIT_WORK_SENT_NEXT : STRAIT_WORK_RECEIVED_NEXT, g);
        const int beside = strait_work_at(
            next, is_forward ? STRAIT_WORK_RECEIVED_PREV : STRAIT_WORK_SENT_PREV, g);
        if (!strait_digest_equal(&work->rows[stage][at], &work->rows[stage + 1][beside])) return g;
    }
    return -1;
}

/* Finds two workers that contradict each other about what one of them got from the other. */
static int find_pair(const struct host *h, const struct host_work_step *work, int *receiver,
                     int *sender) {
    const struct strait_coordinator *c = &h->coordinator;
    const strait_run_plan *plan = &h->executor->plan;
    for (int i = 0; i < plan->n_stages; i++) {
        for (int k = 0; k < plan->replicas[i]; k++) {
            const int other = strait_work_contradicted(shape_of(h, i), k, stated_by(h, i, k)->row,
                                                       work->rows[i]);
            if (other < 0) continue;
            *receiver = strait_coordinator_replica(c, i, k);
            *sender = strait_coordinator_replica(c, i, other);
            return 1;
        }
        for (int forward = 0; forward < 2 && i + 1 < plan->n_stages; forward++) {
            const int g = find_group(h, work, i, forward);
            if (g < 0) continue;
            const int to = i + forward, from = i + !forward;
            *receiver = strait_coordinator_replica(c, to, work->owners[to].replica[g]);
            *sender = strait_coordinator_replica(c, from, work->owners[from].replica[g]);
            return 1;
        }
    }
    return 0;
}

static strait_err compare(struct host *h, int64_t step, struct host_work_step *work) {
    int receiver = -1, sender = -1;
    STRAIT_TRY(open_step(h, work));
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        STRAIT_TRY(merge(h, step, i, work));
    return find_pair(h, work, &receiver, &sender) ? contradict(h, step, receiver, sender)
                                                  : STRAIT_OK;
}

/* Adds a step to the interval in progress, if it is known where that began. */
static strait_err keep(struct host *h, int64_t step, struct host_work_step *work) {
    struct host_statements *all = h->audits->work;
    const int64_t from = h->audits->state.from;
    if (from < 0 || step - from != all->n_steps) return STRAIT_OK;
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        STRAIT_TRY(
            strait_work_extend(shape_of(h, i), work->rows[i], &all->sums[i], &all->results[i]));
    if (strait_host_work_is_shared(h) && all->n_steps < STRAIT_AUDIT_ROWS) {
        all->steps[all->n_steps] = *work;
        *work = (struct host_work_step){0};
    }
    all->n_steps++;
    return STRAIT_OK;
}

strait_err strait_host_audit_compare(struct host *h, int64_t step) {
    struct host_work_step work = {0};
    if (h->audits == NULL) return STRAIT_OK;
    STRAIT_TRY(open_work(h));
    strait_err err = compare(h, step, &work);
    if (err == STRAIT_OK) err = keep(h, step, &work);
    free_step(&work, h->executor->plan.n_stages);
    return err;
}

/* ---- an interval ---- */

/* Returns whether all replicas committed to a snapshot of `to`; a violation by one that did not. */
static int have_committed(struct host *h, int64_t to) {
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        for (int k = 0; k < h->executor->plan.replicas[i]; k++) {
            if (h->audits->work->ends[i][k].to == to) continue;
            count_missing(h, i, k, "commit to");
            return 0;
        }
    return 1;
}

/* Returns a stage whose replicas committed to different snapshots, and which of them; -1: none. */
static int find_differing(const struct host *h, int *replica) {
    const struct host_statements *work = h->audits->work;
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        for (*replica = 1; *replica < h->executor->plan.replicas[i]; ++*replica)
            if (!strait_digest_equal(&work->ends[i][*replica].snapshot, &work->ends[i][0].snapshot))
                return i;
    return -1;
}

void strait_host_work_next(struct host *h, int64_t to) {
    const struct strait_coordinator *c = &h->coordinator;
    int replica = 0;
    /* After a violation the generation has ended: nobody else is judged. */
    const int is_known = c->phase >= STRAIT_PHASE_READY && open_work(h) == STRAIT_OK &&
                         (!strait_host_work_is_shared(h) || have_committed(h, to));
    const int stage = is_known ? find_differing(h, &replica) : -1;
    strait_host_work_begin(h, is_known && stage < 0);
    if (stage < 0 || strait_host_audit_contested(h) != NULL) return;
    const int a = c->owner[stage], b = strait_coordinator_replica(c, stage, replica);
    if (a < 0 || b < 0) return; // the generation has ended
    strait_host_audit_judge(
        h, &(strait_verdict){.kind = STRAIT_VERDICT_DROPPED,
                             .stage = stage,
                             .from = to - 1,
                             .to = to,
                             .is_contested = 1,
                             .contested = {c->workers[a].key, c->workers[b].key},
                             .reason = "replicas hold different states, and nobody knows why"});
}

void strait_host_work_begin(struct host *h, int is_agreed) {
    if (open_work(h) != STRAIT_OK) return;
    struct host_statements *work = h->audits->work;
    work->is_agreed = is_agreed;
    for (int i = 0; i < STRAIT_AUDIT_ROWS && i < work->n_steps; i++)
        free_step(&work->steps[i], h->coordinator.config.n_stages);
    work->n_steps = 0;
    memset(work->sums, 0, sizeof work->sums);
    memset(work->results, 0, sizeof work->results);
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        for (int k = 0; k < STRAIT_WORK_REPLICAS; k++)
            work->ends[i][k].to = -1;
}

/* Returns whether all replicas of a stage committed to a snapshot. */
static int list_replicas(const struct host *h, int64_t to, int stage, strait_interval_stage *out) {
    const struct strait_coordinator *c = &h->coordinator;
    out->n_replicas = h->executor->plan.replicas[stage];
    for (int k = 0; k < out->n_replicas; k++) {
        const int slot = strait_coordinator_replica(c, stage, k);
        if (slot < 0) return 0; // banned since
        out->replicas[k].key = c->workers[slot].key;
        out->replicas[k].snapshot = h->audits->work->ends[stage][k].snapshot;
        if (h->audits->work->ends[stage][k].to != to) return 0;
    }
    return 1;
}

int strait_host_work_end(struct host *h, int64_t to, strait_interval_stage *stages) {
    const struct host_statements *work = h->audits->work;
    const int is_shared = strait_host_work_is_shared(h);
    if (work == NULL || !work->is_agreed || work->n_steps != to - h->audits->state.from ||
        (is_shared && work->n_steps > STRAIT_AUDIT_ROWS))
        return 0;
    for (int i = 0; i < h->executor->plan.n_stages; i++) {
        if (is_shared && !list_replicas(h, to, i, &stages[i])) return 0;
        strait_audits_amend(&h->audits->state, i, &work->sums[i]);
        stages[i].sums = work->results[i].sums;
    }
    return 1;
}

/* ---- an audit ---- */

static strait_err copy_step(const struct host *h, const struct host_work_step *from,
                            struct host_work_step *out) {
    STRAIT_TRY(open_step(h, out));
    for (int i = 0; i < h->executor->plan.n_stages; i++) {
        out->owners[i] = from->owners[i];
        memcpy(out->rows[i], from->rows[i],
               (size_t)strait_work_digests(shape_of(h, i)) * sizeof **out->rows);
    }
    return STRAIT_OK;
}

strait_err strait_host_work_copy(struct host *h, struct host_audit *a) {
    const int64_t n = a->evidence.spec.to - a->evidence.spec.from;
    a->shape = shape_of(h, a->evidence.spec.stage);
    a->n_stages = h->executor->plan.n_stages;
    if (!strait_host_work_is_shared(h)) return STRAIT_OK;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *a->work, "work of an interval", (void **)&a->work));
    for (int64_t i = 0; i < n; i++)
        STRAIT_TRY(copy_step(h, &h->audits->work->steps[i], &a->work[i]));
    return STRAIT_OK;
}

void strait_host_work_drop(struct host_audit *a) {
    for (int64_t i = 0; a->work != NULL && i < a->evidence.spec.to - a->evidence.spec.from; i++)
        free_step(&a->work[i], a->n_stages);
    strait_alloc_free(a->work);
    a->work = NULL;
}

int strait_host_work_giver(const struct host_audit *a, strait_evidence_part part, int64_t step,
                           int microbatch) {
    const strait_evidence_spec *spec = &a->evidence.spec;
    const int stage = spec->stage + (part == STRAIT_EVIDENCE_NEXT) - (part == STRAIT_EVIDENCE_PREV);
    if (a->work == NULL || part == STRAIT_EVIDENCE_SNAPSHOT) return 0;
    return a->work[step - spec->from]
        .owners[stage]
        .replica[strait_groups_of(&spec->groups, microbatch)];
}

strait_err strait_host_work_audited(struct host_audit *a, int64_t step, const strait_view *bytes) {
    strait_digest row[STRAIT_WORK_MAX];
    const int stage = a->evidence.spec.stage;
    if (a->shape.n_replicas <= 1) return STRAIT_OK;
    const struct host_work_step *work = &a->work[step - a->evidence.spec.from];
    STRAIT_TRY(strait_work_read(a->shape, bytes, row));
    if (a->blamed == 0)
        a->blamed = strait_work_blame(a->shape, &work->owners[stage], work->rows[stage], row);
    return strait_work_extend(a->shape, row, &a->so_far, &a->result);
}
