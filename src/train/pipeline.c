#include "base/alloc.h"
#include "stage/limits.h"
#include "train/pipeline/pipeline_state.h"
#include "train/report/step_details.h"
#include "train/shares.h"
#include "train/step_commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

strait_err strait_pipeline_open(struct strait_executor *executor,
                                struct strait_stage_channel *channel,
                                struct strait_pipeline **out) {
    struct strait_pipeline *p = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *p, "pipeline", (void **)&p));
    p->executor = executor;
    p->channel = channel;
    p->n_stages = executor->plan.n_stages;
    strait_shares_choose(&executor->run, &executor->plan, NULL, p->owners);
    p->steps = (struct strait_step_commands){
        .channel = channel, .plan = &executor->plan, .owners = p->owners};
    p->nonfinite_stage = p->outer.fragment = -1;
    const strait_err err = strait_alloc((size_t)channel->replies.capacity *
                                            (size_t)channel->n_members,
                                        sizeof *p->joined, "gradient norms", (void **)&p->joined);
    if (err != STRAIT_OK) {
        strait_pipeline_close(&p);
        return err;
    }
    *out = p;
    return STRAIT_OK;
}

void strait_pipeline_close(struct strait_pipeline **pipeline) {
    if (*pipeline == NULL) return;
    strait_alloc_free((*pipeline)->joined);
    strait_alloc_free(*pipeline);
    *pipeline = NULL;
}

/* Sends one command to the first replica of every stage. */
strait_err strait_pipeline_command_first(struct strait_pipeline *p,
                                         const strait_stage_command *command) {
    for (int i = 0; i < p->n_stages; i++)
        STRAIT_TRY(p->channel->ops->send(p->channel, first_of(p, i), command));
    return p->channel->ops->gather(p->channel);
}

strait_err strait_pipeline_command_all(struct strait_pipeline *p,
                                       const strait_stage_command *command) {
    for (int i = 0; i < p->channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        if (!is_lost(p, replica)) STRAIT_TRY(p->channel->ops->send(p->channel, i, command));
    }
    return p->channel->ops->gather(p->channel);
}

void strait_pipeline_share(struct strait_pipeline *p, const strait_step_times *times) {
    strait_shares_choose(&p->executor->run, plan_of(p), times, p->owners);
}

int strait_pipeline_count_microbatches(const struct strait_pipeline *p, int stage, int replica) {
    return strait_groups_count(&plan_of(p)->groups, &p->owners[stage], replica);
}

/* ---- opening ---- */

/* Memory of a device limits the windows only where there is one; the host's is asked for by
 * strait_limits_windows itself. */
strait_err strait_pipeline_choose_windows(struct strait_pipeline *p) {
    struct strait_executor *executor = p->executor;
    strait_step_times times[STRAIT_RUN_STAGES];
    strait_step_times members[STRAIT_RUN_MEMBERS];
    double delays[STRAIT_RUN_STAGES];
    uint64_t device_free[STRAIT_RUN_STAGES];
    STRAIT_TRY(strait_pipeline_command_all(
        p, &(strait_stage_command){.kind = STRAIT_COMMAND_TIME_PASSES}));
    for (int i = 0; i < p->channel->n_members; i++)
        members[i] = p->channel->replies.items[i].time_passes.times;
    for (int i = 0; i < p->n_stages; i++) {
        const int n = plan_of(p)->replicas[i];
        times[i] = strait_shares_mean(&members[first_of(p, i)], n, n);
        delays[i] = reply_of(p, i)->time_passes.next_delay_s;
        device_free[i] = reply_of(p, i)->device_free;
    }
    strait_shares_choose(&executor->run, &executor->plan, members, p->owners);
    return strait_limits_windows(&executor->plan, (int)executor->run.stages.window, times, delays,
                                 executor->plan.scratch_bytes > 0 ? device_free : NULL,
                                 executor->windows, &executor->planned_tokens_per_s);
}

strait_err strait_pipeline_open_stages(struct strait_pipeline *p, const int *windows,
                                       int may_reuse) {
    for (int i = 0; i < p->channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        const strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN,
                                              .open = {windows[stage], may_reuse}};
        STRAIT_TRY(p->channel->ops->send(p->channel, i, &command));
    }
    STRAIT_TRY(p->channel->ops->gather(p->channel));
    (void)snprintf(p->executor->device, sizeof p->executor->device, "%d stages, %.100s",
                   p->n_stages, reply_of(p, 0)->open.device);
    if (p->channel->n_members > p->n_stages)
        (void)snprintf(p->executor->device, sizeof p->executor->device,
                       "%d stages, %d replicas in all, %.78s", p->n_stages, p->channel->n_members,
                       reply_of(p, 0)->open.device);
    return STRAIT_OK;
}

/* ---- a step ---- */

/* Squares are joined in the order of the model's parameters before they are summed: the same bits
 * whatever the cut into stages. */
static double all_norm(struct strait_pipeline *p) {
    int n = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const strait_floats *squares = &reply_of(p, i)->gradients.squares;
        memcpy(p->joined + n, squares->data, (size_t)squares->n * sizeof(float));
        n += squares->n;
    }
    return strait_executor_norm(p->joined, n);
}

/* The limit of a step can be computed only if the properties of its links are known: a real link
 * has no declared bandwidth. */
static int knows_links(const struct strait_executor *executor) {
    const strait_emulate_spec *e = &executor->plan.emulate;
    return executor->run.link.transport == STRAIT_RUN_INPROC || e->rate_bps > 0 ||
           e->delay_ns > 0 || e->jitter_ns > 0 || e->loss > 0;
}

/* Whether there are several replicas of each stage, with weights of their own. */
static int trains_apart(const struct strait_pipeline *p) {
    return strait_run_plan_has_outer(plan_of(p)) && plan_of(p)->n_members > p->n_stages;
}

/* The comparison with 0 is written so that it also holds for a count that is NaN. */
static int is_nonfinite(const strait_stage_reply *reply) {
    const strait_floats *squares = &reply->gradients.squares;
    if (!(reply->gradients.faults.nonfinite == 0.0) || !isfinite(reply->gradients.loss_sum))
        return 1;
    for (int k = 0; k < squares->n; k++)
        if (!isfinite(squares->data[k])) return 1;
    return 0;
}

/* Keeps what the accessors report. */
static void note_step(struct strait_pipeline *p) {
    int n_usable = 0;
    p->nonfinite_stage = -1;
    for (int r = 0; r < STRAIT_RUN_REPLICAS; r++)
        p->outer.nonfinite[r] = -1;
    /* From last to first, so that the first stage with non-finite values is the one reported: later
     * ones may only have received them. */
    for (int i = p->channel->n_members - 1; i >= 0; i--) {
        int stage, replica;
        const strait_stage_reply *reply = &p->channel->replies.items[i];
        const strait_step_times *t = &reply->gradients.times;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        if (is_lost(p, replica)) continue;
        p->busy_s[stage] = t->forward + t->input + t->weights + t->codec;
        if (is_nonfinite(reply)) p->nonfinite_stage = p->outer.nonfinite[replica] = stage;
    }
    /* Replicas that train on their own skip their update, and the others go on. */
    for (int r = 0; trains_apart(p) && r < plan_of(p)->replicas[0]; r++)
        n_usable += !is_lost(p, r) && p->outer.nonfinite[r] < 0;
    if (n_usable > 0) p->nonfinite_stage = -1;
}

/* What the replicas of a stage report of one step, as one: bytes and faults of all, times of their
 * mean, errors of the one that lost most. */
static strait_stage_reply join_replicas(const struct strait_pipeline *p, int stage) {
    const int n = plan_of(p)->replicas[stage];
    const strait_stage_reply *first = reply_of(p, stage);
    strait_step_times times[STRAIT_RUN_REPLICAS] = {first->gradients.times};
    strait_stage_reply all = *first;
    int n_joined = 1;
    for (int i = first_replica(p) + 1; i < n; i++) {
        const strait_stage_reply *reply = first + (i - first_replica(p));
        if (is_lost(p, i)) continue;
        times[n_joined++] = reply->gradients.times;
        all.gradients.forward_bytes += reply->gradients.forward_bytes;
        all.gradients.backward_bytes += reply->gradients.backward_bytes;
        all.gradients.reduce_bytes += reply->gradients.reduce_bytes;
        all.gradients.residual_forward = fmax(all.gradients.residual_forward,
                                              reply->gradients.residual_forward);
        all.gradients.residual_backward = fmax(all.gradients.residual_backward,
                                               reply->gradients.residual_backward);
        all.gradients.faults.nonfinite += reply->gradients.faults.nonfinite;
        all.gradients.faults.rejected_prev += reply->gradients.faults.rejected_prev;
        all.gradients.faults.rejected_next += reply->gradients.faults.rejected_next;
    }
    all.gradients.times = strait_shares_mean(times, n_joined, 1);
    return all;
}

static void combine(struct strait_pipeline *p, strait_executor_report *report) {
    struct strait_executor *executor = p->executor;
    strait_step_times *times = report->times;
    double n_faults = 0.0;
    for (int i = 0; i < p->n_stages; i++) {
        const strait_stage_reply joined = join_replicas(p, i);
        const strait_stage_reply *reply = &joined;
        const double forward = (double)reply->gradients.forward_bytes;
        const double backward = (double)reply->gradients.backward_bytes;
        const strait_stage_faults *faults = &reply->gradients.faults;
        times[i] = reply->gradients.times;
        report->reduce_bytes = fmax(report->reduce_bytes, (double)reply->gradients.reduce_bytes /
                                                              plan_of(p)->replicas[i]);
        executor->device_bytes[i] = reply->device_bytes;
        report->loss_sum += reply->gradients.loss_sum;
        report->bubble += times[i].wait / times[i].wall / p->n_stages;
        if (forward > report->forward_bytes) report->forward_bytes = forward;
        if (backward > report->backward_bytes) report->backward_bytes = backward;
        report->boundary_backward[i] = backward;
        if (i > 0) report->boundary_forward[i - 1] = forward;
        report->residual_forward[i] = reply->gradients.residual_forward;
        report->leak[i] = reply->gradients.basis.leak;
        report->corrections[i] = reply->gradients.basis.corrections;
        if (i > 0) report->residual_backward[i - 1] = reply->gradients.residual_backward;
        n_faults += faults->nonfinite + faults->rejected_next + faults->rejected_prev;
    }
    const strait_codec_basis_metrics *basis = &reply_of(p, 0)->gradients.basis;
    report->basis_angle = basis->angle;
    report->basis_mean_angle = basis->mean_angle;
    report->basis_error = basis->error;
    /* Codecs replaced faulty values by 0, so the gradients are finite but not those of the model:
     * without a norm the trainer skips the update. */
    if (trains_apart(p))
        report->norm = strait_pipeline_local_norms(p, &report->loss_sum);
    else
        report->norm = n_faults > 0.0 ? NAN : all_norm(p);
    const strait_step_measure measure = {.windows = executor->windows,
                                         .times = times,
                                         .knows_links = knows_links(executor),
                                         .forward_bytes = report->forward_bytes,
                                         .backward_bytes = report->backward_bytes};
    strait_limits_explain(&executor->plan, &measure, p->spans, STRAIT_PIPELINE_SPANS,
                          &report->limit);
    const int is_whole = report->limit.n_spans < STRAIT_PIPELINE_SPANS;
    strait_step_details_reduction(&executor->plan, &measure, is_whole ? p->spans : NULL,
                                  &report->limit);
    report->spans = p->spans;
    report->metered_s = strait_limits_metered(&executor->plan, executor->windows, times,
                                              report->forward_bytes, report->backward_bytes);
}

strait_err strait_pipeline_gradients(struct strait_pipeline *p, int64_t step,
                                     strait_executor_report *out) {
    strait_executor_report report = {0};
    STRAIT_TRY(strait_step_commands_gradients(&p->steps, step, p->executor->continues));
    note_step(p);
    combine(p, &report);
    *out = report;
    return STRAIT_OK;
}

/* The last stage proposes the next basis of the subspace codec, then every stage adopts it. */
static strait_err update_basis(struct strait_pipeline *p, int64_t step) {
    const int last = p->n_stages - 1;
    const strait_stage_command propose = {.kind = STRAIT_COMMAND_PROPOSE_BASIS};
    STRAIT_TRY(strait_stage_channel_command_one(p->channel, first_of(p, last), &propose));
    const strait_floats *basis = &reply_of(p, last)->propose_basis.basis;
    memcpy(p->joined, basis->data, (size_t)basis->n * sizeof *p->joined);
    const strait_stage_command adopt = {
        .kind = STRAIT_COMMAND_ADOPT_BASIS,
        .adopt_basis = {.version = (uint32_t)step, // rises, whatever the interval was before
                        .basis = {p->joined, basis->n}}};
    return strait_pipeline_command_all(p, &adopt);
}

strait_err strait_pipeline_update(struct strait_pipeline *p, int64_t step, float factor) {
    STRAIT_TRY(trains_apart(p) ? strait_pipeline_local_updates(p, step)
                               : strait_step_commands_update(&p->steps, step, factor));
    p->snapshot_s = 0.0;
    if (plan_of(p)->staleness > 0) return STRAIT_OK; // a local run: no snapshots, no new basis
    for (int i = 0; i < p->n_stages; i++) {
        p->snapshot_s = fmax(p->snapshot_s, reply_of(p, i)->update.snapshot_s);
        p->copy_s[i] = reply_of(p, i)->update.copy_s;
        p->link_bps[i] = reply_of(p, i)->update.link_bps;
    }
    if (!strait_run_plan_updates_basis(&p->executor->plan, step + 1)) return STRAIT_OK;
    return update_basis(p, step + 1);
}

strait_err strait_pipeline_validate(struct strait_pipeline *p, int64_t step, double *loss_sum) {
    const strait_stage_command command = {.kind = STRAIT_COMMAND_VALIDATE, .validate = {step}};
    STRAIT_TRY(strait_pipeline_command_first(p, &command));
    *loss_sum = reply_of(p, p->n_stages - 1)->validate.loss_sum;
    return STRAIT_OK;
}

int strait_pipeline_nonfinite_stage(const struct strait_pipeline *p) {
    return p->nonfinite_stage;
}

int strait_pipeline_nonfinite_in(const struct strait_pipeline *p, int replica) {
    return p->outer.nonfinite[replica];
}

double strait_pipeline_busy_seconds(const struct strait_pipeline *p, int stage) {
    return p->busy_s[stage];
}

double strait_pipeline_snapshot_seconds(const struct strait_pipeline *p) {
    return p->snapshot_s;
}

double strait_pipeline_copy_seconds(const struct strait_pipeline *p, int stage) {
    return p->copy_s[stage];
}

double strait_pipeline_link_bps(const struct strait_pipeline *p, int stage) {
    return p->link_bps[stage];
}
