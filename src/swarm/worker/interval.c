/* interval.c - what the owner of a stage commits to after each interval between two snapshots, so
 * that others can check later that it computed what it says (host/audit/audits.h). */
#include "swarm/worker/state.h"

#include <string.h>

void strait_worker_begin_interval(struct worker *w, int64_t step) {
    const struct worker_interval *last = &w->interval;
    w->interval = (struct worker_interval){.is_on = last->is_on,
                                           .from = step,
                                           .before = last->from,
                                           .step = -1,
                                           .n_audited = last->n_audited};
}

/* Digests of sums only where everybody computes the same bits. */
strait_err strait_worker_hash_work(struct worker *w) {
    return w->interval.is_on ? strait_runner_hash_work(strait_service_runner(w->service), 0)
                             : STRAIT_OK;
}

strait_work_shape strait_worker_work_shape(const struct worker *w, int n_replicas) {
    const struct strait_runner *runner = strait_service_runner(w->service);
    return (strait_work_shape){.n_groups = runner->plan.groups.n_groups,
                               .n_replicas = n_replicas,
                               .has_prev = runner->receiver != NULL,
                               .has_next = runner->sender != NULL};
}

static void copy_crossings(strait_work_shape shape, const struct strait_boundary *boundary,
                           strait_work_crossing sent, strait_work_crossing received,
                           strait_digest *row) {
    if (boundary == NULL) return;
    const struct strait_crossing_hash *hash = strait_boundary_digests(boundary);
    const size_t bytes = (size_t)shape.n_groups * sizeof *row;
    memcpy(&row[strait_work_at(shape, sent, 0)], hash->groups[STRAIT_CROSSING_SENT], bytes);
    memcpy(&row[strait_work_at(shape, received, 0)], hash->groups[STRAIT_CROSSING_RECEIVED], bytes);
}

void strait_worker_describe_work(const struct worker *w, strait_work_shape shape,
                                 strait_digest row[STRAIT_WORK_MAX]) {
    const struct strait_runner *runner = strait_service_runner(w->service);
    memset(row, 0, STRAIT_WORK_MAX * sizeof *row);
    copy_crossings(shape, runner->receiver, STRAIT_WORK_SENT_PREV, STRAIT_WORK_RECEIVED_PREV, row);
    copy_crossings(shape, runner->sender, STRAIT_WORK_SENT_NEXT, STRAIT_WORK_RECEIVED_NEXT, row);
    row[strait_work_report(shape)] = w->interval.latest_report;
    if (runner->work == NULL) return;
    const strait_sums_work *sums = strait_sums_hash_work(runner->work);
    for (int r = 0; r < shape.n_replicas; r++) {
        for (int o = 0; o < shape.n_replicas; o++)
            row[strait_work_given(shape, r, o)] = sums->given[r][o];
        row[strait_work_total(shape, r)] = sums->totals[r];
    }
}

/* Before the reply, so that the coordinator can compare what all state before the step is applied.
 * An auditor replies with it instead. */
static strait_err send_work(struct worker *w, int64_t step) {
    strait_digest row[STRAIT_WORK_MAX];
    struct strait_msg *msg = NULL;
    const strait_work_shape shape = strait_worker_work_shape(w, w->replicas.n[STRAIT_SIDE_SAME]);
    if (!w->has_stage) return STRAIT_OK;
    if (strait_work_digests(shape) > STRAIT_WORK_MAX)
        return STRAIT_FAIL(STRAIT_EPROTO, "commitments for %d replicas", shape.n_replicas);
    strait_worker_describe_work(w, shape, row);
    const strait_work_message message = {
        .stage = w->stage,
        .generation = w->generation,
        .step = step,
        .row = {(const unsigned char *)row, (size_t)strait_work_digests(shape) * sizeof *row}};
    STRAIT_TRY(strait_work_pack(strait_mesh_pool(w->control.mesh), &message, &msg));
    strait_worker_send(w, &msg);
    return STRAIT_OK;
}

/* The digests of a step at one boundary. */
static strait_err hash_step(const struct strait_runner *runner,
                            const struct strait_boundary *boundary, strait_digest *sent,
                            strait_digest *received) {
    const int n = runner->plan.groups.n_groups;
    if (boundary == NULL) return STRAIT_OK;
    const struct strait_crossing_hash *hash = strait_boundary_digests(boundary);
    STRAIT_TRY(strait_crossing_hash_step(hash->groups[STRAIT_CROSSING_SENT], n, sent));
    return strait_crossing_hash_step(hash->groups[STRAIT_CROSSING_RECEIVED], n, received);
}

static strait_err extend(strait_digest *sum, const strait_digest *one) {
    return strait_digest_extend(sum, one->bytes, sizeof one->bytes);
}

/* Adds the newest step, which will not be computed again. */
static strait_err fold(struct worker *w) {
    struct worker_interval *i = &w->interval;
    const struct strait_runner *runner = strait_service_runner(w->service);
    if (i->step < 0) return STRAIT_OK;
    if (runner->receiver != NULL) {
        STRAIT_TRY(extend(&i->sum.sent_prev, &i->latest.sent_prev));
        STRAIT_TRY(extend(&i->sum.received_prev, &i->latest.received_prev));
    }
    if (runner->sender != NULL) {
        STRAIT_TRY(extend(&i->sum.sent_next, &i->latest.sent_next));
        STRAIT_TRY(extend(&i->sum.received_next, &i->latest.received_next));
    }
    i->step = -1;
    return extend(&i->reports, &i->latest_report);
}

strait_err strait_worker_add_step(struct worker *w, int64_t step, const strait_stage_reply *reply) {
    struct worker_interval *i = &w->interval;
    const struct strait_runner *runner = strait_service_runner(w->service);
    const strait_floats *squares = &reply->gradients.squares;
    if (!i->is_on) return STRAIT_OK;
    if (i->step != step) STRAIT_TRY(fold(w));
    i->step = step;
    STRAIT_TRY(hash_step(runner, runner->receiver, &i->latest.sent_prev, &i->latest.received_prev));
    STRAIT_TRY(hash_step(runner, runner->sender, &i->latest.sent_next, &i->latest.received_next));
    i->latest_report = (strait_digest){{0}};
    STRAIT_TRY(strait_commitment_add_report(&i->latest_report, step, reply->gradients.loss_sum,
                                            squares->data, squares->n));
    return send_work(w, step);
}

strait_err strait_worker_end_interval(struct worker *w, strait_commitment *out,
                                      strait_digest *reports) {
    STRAIT_TRY(fold(w));
    *out = w->interval.sum;
    out->from = w->interval.from;
    out->to = w->step;
    *reports = w->interval.reports;
    return STRAIT_OK;
}

strait_err strait_worker_commit(struct worker *w, const struct strait_snapshot *snapshot) {
    strait_commitment_message message = {.stage = w->stage, .generation = w->generation};
    struct strait_msg *msg = NULL;
    strait_digest reports;
    if (!w->interval.is_on || snapshot == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_worker_end_interval(w, &message.interval, &reports));
    message.interval.snapshot = snapshot->digest;
    STRAIT_TRY(strait_commitment_pack(strait_mesh_pool(w->control.mesh), &message, &msg));
    strait_worker_send(w, &msg);
    strait_worker_begin_interval(w, w->step);
    return STRAIT_OK;
}
