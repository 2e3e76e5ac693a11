/* verify.c - what the host does about reports that are out of bounds or implausible (claims.h).
 *
 * An impossible report is a violation at once. An implausible one is verified: the coordinator
 * moves the stage to a spare, the step is recomputed, and the two results decide. */
#include "base/clock.h"
#include "swarm/host/replicas.h"
#include "swarm/host/verify/pipeline_levels.h"
#include "train/pipeline.h"

#include <string.h>

enum {
    STRAYS_MAX = 8,     // replies without a command that broken links can explain
    FRAME_BYTES = 1024, // of a crossing, besides what the codec encodes
    IDS_BYTES = 8,      // of a token: its id and its target, in four bytes each
    OTHER_BYTES = 1 << 20,
    SPEEDS_MIN = 3,  // fewer have no majority
    BYTES_FACTOR = 4 // between what a step receives and what counts as too much
};

static const double speed_slack = 8.0; // between claimed and timed speeds

strait_err strait_host_open_claims(struct host *h) {
    const strait_run_plan *plan = &h->executor->plan;
    for (int i = 0; i < plan->n_stages; i++) {
        strait_runner_memory m;
        STRAIT_TRY(strait_runner_plan(plan, i, 1, &m));
        h->claims.n_params[i] = m.n_params;
    }
    return STRAIT_OK;
}

/* ---- out of bounds ---- */

static strait_claims_limits limits_of(const struct host *h, int stage) {
    const struct strait_coordinator *c = &h->coordinator;
    const strait_run_plan *plan = &h->executor->plan;
    const double wire = (double)strait_codec_wire_bytes(&plan->codec, STRAIT_FORWARD) +
                        (double)strait_codec_wire_bytes(&plan->codec, STRAIT_BACKWARD);
    const int is_validation = h->work.kind == STRAIT_COMMAND_VALIDATE;
    return (strait_claims_limits){
        .is_last = stage == plan->n_stages - 1,
        .elapsed_s = (double)(strait_clock_ns() - c->phase_began_ns) * 1e-9,
        .tokens = is_validation ? (double)(strait_loader_valid_windows(h->executor->loader) *
                                           plan->shape.context)
                                : (double)h->run.train.batch_tokens,
        .crossing_bytes = BYTES_FACTOR * ((double)plan->n_microbatches * (wire + FRAME_BYTES) +
                                          (double)(h->run.train.batch_tokens * IDS_BYTES) +
                                          c->config.need_bytes[stage] + OTHER_BYTES),
        .snapshot_bytes = c->config.need_bytes[stage],
        .n_squares = h->claims.n_params[stage],
        .n_basis = (int)(plan->codec.cols * plan->codec.keep)};
}

int strait_host_check_claims(struct host *h, int worker, const strait_layout *header,
                             const strait_layout *body, void *message) {
    const strait_swarm_worker *sender = &h->coordinator.workers[worker];
    const int stage = strait_coordinator_stage_of(&h->coordinator, worker);
    const strait_claims_limits limits = limits_of(h, stage);
    strait_claims_finding finding = {0};
    strait_claims_check(header, message, &limits, &finding);
    if (body != NULL) strait_claims_check(body, message, &limits, &finding);
    if (finding.field == NULL) return 1;
    if (!finding.is_impossible) { // once per generation: it may be so in every step
        if (h->claims.warned[worker] != h->coordinator.generation)
            strait_host_note(h, "%s, stage %d: reported %s = %g, which is too much; using less",
                             sender->report.name, stage, finding.field, finding.value);
        h->claims.warned[worker] = h->coordinator.generation;
        return 1;
    }
    strait_host_note(h, "%s, stage %d: reported an impossible %s (%g)", sender->report.name, stage,
                     finding.field, finding.value);
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = worker});
    return 0;
}

void strait_host_count_reply(struct host *h, struct connection *connection) {
    h->coordinator.workers[connection->worker].asked_ns = 0; // late, too, it executes commands
    if (--connection->n_owed >= -STRAYS_MAX) return;
    connection->n_owed = 0;
    strait_host_note(h, "%s: sent %d replies that nobody asked for",
                     h->coordinator.workers[connection->worker].report.name, STRAYS_MAX + 1);
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = connection->worker});
}

/* ---- speeds ---- */

/* Of the first replica of a stage: what all replicas report alike. */
static const strait_stage_reply *first_reply(const struct host *h, int stage) {
    return &h->work.channel.replies.items[strait_run_plan_member(&h->executor->plan, stage, 0)];
}

/* Returns what the claimed speed makes of the time per layer: equal for all workers that claim the
 * truth, larger for those that claim too much; 0: unknown. */
static double claimed_work(const struct host *h, int stage) {
    const strait_run_plan *plan = &h->executor->plan;
    const strait_step_times *t = &first_reply(h, stage)->time_passes.times;
    const double layers = plan->stage_layers[stage].last - plan->stage_layers[stage].first +
                          (stage == plan->n_stages - 1);
    const double flops = strait_host_owner(h, stage)->report.flops;
    return layers > 0.0 ? flops * (t->forward + t->input + t->weights) / layers : 0.0;
}

void strait_host_correct_speeds(struct host *h) {
    const int n = h->executor->plan.n_stages;
    double known[STRAIT_RUN_STAGES];
    int n_known = 0;
    for (int i = 0; i < n; i++) {
        const double work = claimed_work(h, i);
        int at = n_known;
        if (!(work > 0.0)) continue;
        for (; at > 0 && known[at - 1] > work; at--)
            known[at] = known[at - 1];
        known[at] = work;
        n_known++;
    }
    for (int i = 0; i < n && n_known >= SPEEDS_MIN; i++) {
        const double excess = claimed_work(h, i) / known[n_known / 2];
        if (!(excess > speed_slack)) continue; // so is the speed of nobody
        strait_swarm_report *report = &h->coordinator.workers[h->coordinator.owner[i]].report;
        strait_host_note(h,
                         "%s, stage %d: claims %.3g FLOP/s, but is %.3g times slower; using that",
                         report->name, i, report->flops, excess);
        report->flops /= excess;
    }
}

/* ---- implausible ---- */

static struct host_suspicion *find_suspicion(struct host *h, int64_t step, int stage,
                                             int is_validation) {
    for (int i = 0; i < STRAIT_HOST_SUSPICIONS; i++) {
        struct host_suspicion *s = &h->claims.suspicions[i];
        if (s->step == step && s->stage == stage && s->is_validation == is_validation) return s;
    }
    return NULL;
}

/* The coordinator may have abandoned the generation. STRAIT_EAGAIN: it has. */
static strait_err wait_if_abandoned(struct host *h) {
    if (h->coordinator.phase == STRAIT_PHASE_READY) return STRAIT_OK;
    STRAIT_TRY(strait_host_wait_ready(h));
    return STRAIT_EAGAIN;
}

static strait_err suspect(struct host *h, const struct host_suspicion *what) {
    const int owner = h->coordinator.owner[what->stage];
    if (owner < 0) return wait_if_abandoned(h); // it was banned since, and is not asked again
    if (h->work.channel.n_members > h->executor->plan.n_stages) {
        strait_host_note(h, "step %lld, stage %d: values that are non-finite or far from before",
                         (long long)what->step, what->stage);
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
        return wait_if_abandoned(h);
    }
    strait_host_note(h, "%s %lld, stage %d: %s reported %s that is non-finite or far from before",
                     what->is_validation ? "validation after step" : "step", (long long)what->step,
                     what->stage, h->coordinator.workers[owner].report.name,
                     what->is_validation ? "a loss" : "a loss or a gradient norm");
    struct host_suspicion *s = &h->claims
                                    .suspicions[h->claims.n_suspicions++ % STRAIT_HOST_SUSPICIONS];
    *s = *what;
    s->key = h->coordinator.workers[owner].key;
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = owner});
    return wait_if_abandoned(h);
}

/* The step was recomputed: tells the coordinator whether the first report was true. A confirmed
 * suspicion is kept, so that a step that is replayed later is not verified again. */
static strait_err settle(struct host *h, struct host_suspicion *s, int is_flagged) {
    const int slot = strait_coordinator_find(&h->coordinator, &s->key);
    const int is_same = slot >= 0 && h->coordinator.owner[s->stage] == slot;
    const strait_swarm_event event = {.kind = is_flagged ? STRAIT_SWARM_CONFIRMED
                                                         : STRAIT_SWARM_CONTRADICTED,
                                      .worker = slot,
                                      .stage = s->stage};
    if (s->is_settled) return STRAIT_OK;
    s->is_settled = 1;
    if (!is_flagged) s->step = -1;
    if (is_flagged && is_same)
        strait_host_note(h,
                         "step %lld, stage %d: the values are the same again, but no other worker "
                         "could verify them",
                         (long long)s->step, s->stage);
    if (slot >= 0 && !(is_flagged && is_same)) strait_host_feed_coordinator(h, &event);
    return wait_if_abandoned(h);
}

static strait_err verify(struct host *h, const struct host_suspicion *what, int is_flagged) {
    struct host_suspicion *s = find_suspicion(h, what->step, what->stage, what->is_validation);
    if (s != NULL) return settle(h, s, is_flagged);
    return is_flagged ? suspect(h, what) : STRAIT_OK;
}

static const strait_floats *squares_of(const struct host *h, int stage) {
    return &first_reply(h, stage)->gradients.squares;
}

/* Replicas that train on their own report the losses of their own microbatches. */
static double step_loss(const struct host *h) {
    const strait_run_plan *plan = &h->executor->plan;
    const int last = plan->n_stages - 1;
    const int n = strait_run_plan_has_outer(plan) ? plan->replicas[last] : 1;
    double sum = 0.0;
    for (int k = 0; k < n; k++)
        sum += first_reply(h, last)[k].gradients.loss_sum;
    return sum / (double)h->run.train.batch_tokens;
}

static int is_plausible(const struct host *h, int stage) {
    const int is_last = stage == h->executor->plan.n_stages - 1;
    return strait_claims_are_squares_plausible(&h->claims.squares[stage], squares_of(h, stage)) &&
           (!is_last ||
            (strait_claims_is_loss_possible(h->executor->plan.shape.vocab, step_loss(h)) &&
             strait_claims_is_loss_plausible(&h->claims.loss, step_loss(h))));
}

/* Replicas compute the squares from the same sum of gradients, with the same kernels. Returns
 * whether those of one stage differ. GPUs may order sums differently. */
static int do_replicas_differ(struct host *h, int64_t step) {
    const strait_run_plan *plan = &h->executor->plan;
    for (int i = 0; i < plan->n_stages && !strait_run_plan_has_outer(plan); i++) {
        const strait_floats *first = squares_of(h, i);
        char kernels[STRAIT_REPLAY_KERNELS];
        strait_replay_kernels(strait_host_owner(h, i)->report.device, kernels);
        for (int k = 1; k < plan->replicas[i] && kernels[0] != '\0'; k++) {
            const strait_floats *other = &h->work.channel.replies
                                              .items[strait_run_plan_member(plan, i, k)]
                                              .gradients.squares;
            if (other->n == first->n &&
                memcmp(other->data, first->data, (size_t)first->n * sizeof *first->data) == 0)
                continue;
            const int slot = strait_coordinator_replica(&h->coordinator, i, k);
            strait_host_note(h,
                             "step %lld, stage %d: replica %d (%s) reported other squares of "
                             "gradients than replica 0; one of the two is at fault",
                             (long long)step, i, k,
                             slot >= 0 ? h->coordinator.workers[slot].report.name : "banned since");
            return 1;
        }
    }
    return 0;
}

/* ---- pipelines that train on their own ---- */

/* Returns the first stage of a replica whose values cannot be used; -1: all can. */
static int find_unusable(struct host *h, int64_t step, int replica, int is_replay,
                         int *is_nonfinite) {
    const int stage = strait_pipeline_nonfinite_in(h->pipeline, replica);
    *is_nonfinite = stage >= 0;
    return stage >= 0 || is_replay ? stage : strait_host_find_far(h, step, replica);
}

/* As many pipelines are far off as are not, such as one of two: nobody knows who is at fault. */
static strait_err doubt_pipelines(struct host *h, int64_t step, int n_far) {
    strait_host_note(h,
                     "step %lld: %d of %d pipelines reported a loss or squares far from before, or "
                     "from others; too few to tell which are at fault",
                     (long long)step, n_far, h->executor->plan.replicas[0]);
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
    return wait_if_abandoned(h);
}

/* What one pipeline reports costs that pipeline, if most others can be used: those are the level of
 * later steps. Not *is_settled: all are non-finite, and the step is verified as in any run. */
static strait_err verify_pipelines(struct host *h, int64_t step, int is_replay, int *is_settled) {
    const strait_run_plan *plan = &h->executor->plan;
    int stages[STRAIT_SWARM_REPLICAS], is_nonfinite[STRAIT_SWARM_REPLICAS];
    double loss = 0.0;
    int n_usable = 0, n_far = 0, first = 0;
    for (int r = plan->replicas[0] - 1; r >= 0; r--) {
        stages[r] = find_unusable(h, step, r, is_replay, &is_nonfinite[r]);
        n_far += stages[r] >= 0 && !is_nonfinite[r];
        if (stages[r] >= 0) continue;
        loss += strait_host_replica_loss(h, r);
        first = r;
        n_usable++;
    }
    *is_settled = n_usable + n_far > 0;
    if (n_far > 0 && n_far >= n_usable) return doubt_pipelines(h, step, n_far);
    if (n_usable == 0) return STRAIT_OK;
    STRAIT_TRY(strait_host_judge_pipelines(h, step, stages, is_nonfinite));
    if (is_replay) return STRAIT_OK;
    strait_claims_accept_loss(&h->claims.loss, loss / n_usable);
    for (int i = 0; i < plan->n_stages; i++)
        strait_claims_accept_squares(&h->claims.squares[i],
                                     &first_reply(h, i)[first].gradients.squares);
    for (int r = 0; r < plan->replicas[0]; r++)
        if (stages[r] < 0) strait_host_accept_pipeline(h, step, r);
    return STRAIT_OK;
}

/* ---- a step ---- */

strait_err strait_host_verify_step(struct host *h, int64_t step, int nonfinite_stage,
                                   int is_replay) {
    const strait_run_plan *plan = &h->executor->plan;
    const int n = plan->n_stages;
    int is_settled = 0;
    if (strait_run_plan_has_outer(plan) && h->work.channel.n_members > n)
        STRAIT_TRY(verify_pipelines(h, step, is_replay, &is_settled));
    if (is_settled) return STRAIT_OK;
    if (do_replicas_differ(h, step)) {
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_IN_DOUBT});
        STRAIT_TRY(wait_if_abandoned(h));
    }
    for (int i = 0; i < n; i++) {
        const struct host_suspicion what = {.step = step, .stage = i};
        /* Non-finite values of one stage make the others' implausible. */
        const int is_flagged = nonfinite_stage >= 0 ? i == nonfinite_stage
                                                    : !is_replay && !is_plausible(h, i);
        STRAIT_TRY(verify(h, &what, is_flagged));
    }
    if (nonfinite_stage >= 0 || is_replay) return STRAIT_OK;
    strait_claims_accept_loss(&h->claims.loss, step_loss(h));
    for (int i = 0; i < n; i++)
        strait_claims_accept_squares(&h->claims.squares[i], squares_of(h, i));
    if (strait_run_plan_has_outer(plan)) strait_host_accept_pipeline(h, step, 0); // it is alone
    return STRAIT_OK;
}

/* The first validation is compared with the training loss. */
strait_err strait_host_verify_validation(struct host *h, int64_t step, double loss_sum) {
    const struct host_suspicion what = {
        .step = step, .stage = h->executor->plan.n_stages - 1, .is_validation = 1};
    const double n_tokens = (double)(strait_loader_valid_windows(h->executor->loader) *
                                     h->executor->plan.shape.context);
    strait_claims_level *level = &h->claims.valid_loss;
    if (level->n_seen == 0) *level = h->claims.loss;
    const double loss = loss_sum / n_tokens;
    const int is_believed = strait_claims_is_loss_possible(h->executor->plan.shape.vocab, loss) &&
                            strait_claims_is_valid_loss_plausible(level, &h->claims.loss, loss);
    STRAIT_TRY(verify(h, &what, !is_believed));
    strait_claims_accept_loss(level, loss);
    return STRAIT_OK;
}
