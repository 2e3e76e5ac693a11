/* interval.c - what the owner of a stage commits to after each interval between two snapshots, so
 * that others can check later that it computed what it says (host/audit/audits.h). */
#include "swarm/worker/state.h"

void strait_worker_begin_interval(struct worker *w, int64_t step) {
    const int is_on = w->interval.is_on;
    w->interval = (struct worker_interval){
        .is_on = is_on, .from = step, .before = w->interval.from, .step = -1};
}

void strait_worker_hash_crossings(struct worker *w) {
    struct strait_runner *runner = strait_service_runner(w->service);
    if (!w->interval.is_on) return;
    if (runner->receiver != NULL) strait_boundary_hash(runner->receiver);
    if (runner->sender != NULL) strait_boundary_hash(runner->sender);
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
    if (runner->receiver != NULL)
        strait_boundary_digests(runner->receiver, &i->latest.sent_prev, &i->latest.received_prev);
    if (runner->sender != NULL)
        strait_boundary_digests(runner->sender, &i->latest.sent_next, &i->latest.received_next);
    i->latest_report = (strait_digest){{0}};
    return strait_commitment_add_report(&i->latest_report, step, reply->gradients.loss_sum,
                                        squares->data, squares->n);
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
