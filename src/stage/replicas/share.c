/* share.c - the part of a step that one replica of a stage computes: its microbatches, the sums of
 * their gradients by groups, and their losses. */
#include "base/clock.h"
#include "stage/runner.h"

#include <string.h>

enum {
    RETRY_MS = 2 // while a queue to another replica is full
};

static strait_err check_owners(const struct strait_runner *runner,
                               const strait_group_owners owners[STRAIT_SIDES]) {
    for (int side = 0; side < STRAIT_SIDES; side++) {
        const int stage = runner->stage + side - STRAIT_SIDE_SAME;
        const int n = stage >= 0 && stage < runner->plan.n_stages ? runner->plan.replicas[stage]
                                                                  : 1;
        for (int g = 0; g < runner->plan.groups.n_groups; g++)
            if (owners[side].replica[g] >= n)
                return STRAIT_FAIL(STRAIT_EPROTO,
                                   "stage %d: group %d of stage %d is for replica "
                                   "%d of %d",
                                   runner->stage, g, stage, owners[side].replica[g], n);
    }
    return STRAIT_OK;
}

strait_err strait_runner_share(struct strait_runner *runner,
                               const strait_group_owners owners[STRAIT_SIDES]) {
    STRAIT_TRY(check_owners(runner, owners));
    memmove(runner->owners, owners, sizeof runner->owners);
    const int n = strait_groups_list(&runner->plan.groups, &runner->owners[STRAIT_SIDE_SAME],
                                     runner->replica, runner->microbatches);
    if (n == 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d, replica %d: no group of microbatches",
                           runner->stage, runner->replica);
    runner->n_microbatches = n;
    /* Those of other pipelines are not ours to report, also where they were in an earlier step. */
    for (int64_t i = 0;
         runner->outer != NULL && runner->sequence_losses != NULL && i < runner->plan.sequences;
         i++)
        runner->sequence_losses[i] = 0.0;
    const int valid_replica = runner->outer != NULL ? runner->replica : 0;
    strait_boundary_share share = {.groups = &runner->plan.groups,
                                   .theirs = &runner->owners[STRAIT_SIDE_PREV],
                                   .valid_replica = valid_replica,
                                   .microbatches = runner->microbatches,
                                   .n_microbatches = n};
    if (runner->receiver != NULL) strait_boundary_set_share(runner->receiver, &share);
    share.theirs = &runner->owners[STRAIT_SIDE_NEXT];
    if (runner->sender != NULL) strait_boundary_set_share(runner->sender, &share);
    return STRAIT_OK;
}

strait_err strait_runner_hash_work(struct strait_runner *runner, int n_audited) {
    const int n_replicas = n_audited > 0 ? n_audited : runner->plan.replicas[runner->stage];
    const strait_sums_hash_spec spec = {.groups = &runner->plan.groups,
                                        .params = runner->params,
                                        .n_params = runner->n_params,
                                        .n_replicas = n_replicas,
                                        .replica = n_audited > 0 ? -1 : runner->replica,
                                        .losses = runner->sequence_losses,
                                        .n_losses = (int)runner->plan.sequences};
    if (runner->receiver != NULL) strait_boundary_hash(runner->receiver);
    if (runner->sender != NULL) strait_boundary_hash(runner->sender);
    if (runner->reduction != NULL) strait_reduction_hash(runner->reduction, NULL);
    runner->sums.audited = NULL;
    strait_sums_hash_close(&runner->work);
    if (n_replicas <= 1 || !runner->plan.sums_pairwise) return STRAIT_OK;
    STRAIT_TRY(strait_sums_hash_open(&spec, &runner->work));
    if (runner->reduction != NULL) strait_reduction_hash(runner->reduction, runner->work);
    if (n_audited > 0) runner->sums.audited = runner->work;
    runner->sums.audited_owners = &runner->audited;
    return STRAIT_OK;
}

static int group_of(const struct strait_runner *runner, int i) {
    return strait_groups_of(&runner->plan.groups, runner->microbatches[i]);
}

/* The next group is computed in the memory of the gradients: matrices of the model overwrite it. */
static strait_err restart(struct strait_runner *runner, int is_deferred) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    struct strait_boundary *const sides[] = {runner->receiver, runner->sender};
    STRAIT_TRY(strait_stage_restart_gradients(runner->model, is_deferred));
    for (int i = 0; is_deferred && i < 2; i++)
        if (sides[i] != NULL)
            STRAIT_TRY(strait_codec_zero_gradients(strait_boundary_codec(sides[i]), stream));
    return STRAIT_OK;
}

/* A sum that is put aside may be one that another replica waits for. */
static strait_err put_aside(struct strait_runner *runner, int is_deferred) {
    int is_blocked = 0;
    STRAIT_TRY(strait_gradient_sums_put_aside(&runner->sums, strait_stage_stream(runner->model),
                                              is_deferred));
    if (runner->reduction == NULL) return STRAIT_OK;
    strait_reduction_ready(runner->reduction, runner->sums.kinds[is_deferred].newest, is_deferred);
    return strait_reduction_send(runner->reduction, &is_blocked);
}

strait_err strait_runner_sum_gradients(struct strait_runner *runner, int i, int is_deferred) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    const int group = group_of(runner, i);
    const int is_last = i + 1 == runner->n_microbatches;
    if (!runner->plan.sums_pairwise || (!is_last && group_of(runner, i + 1) == group))
        return STRAIT_OK;
    STRAIT_TRY(strait_gradient_sums_add(&runner->sums, stream, is_deferred, group));
    if (is_last) return STRAIT_OK;
    STRAIT_TRY(put_aside(runner, is_deferred));
    return restart(runner, is_deferred);
}

static strait_err fail_silent(const struct strait_runner *runner, int64_t step, int timeout_ms) {
    const int reader = strait_reduction_blocked(runner->reduction);
    return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                       "stage %d, replica %d: %s replica %d for %.3g s while summing the gradients "
                       "of step %lld; check that replica, its link and link.deadline",
                       runner->stage, runner->replica,
                       reader >= 0 ? "nothing was read by" : "received nothing from",
                       reader >= 0 ? reader : strait_reduction_awaited(runner->reduction),
                       (double)timeout_ms / 1e3, (long long)step + 1);
}

/* Nobody may wait for space in a queue without taking what arrives: the other side may do the same.
 * A replica that reads nothing is given up like one that sends nothing. */
strait_err strait_runner_exchange_sums(struct strait_runner *runner, int64_t step, int timeout_ms) {
    struct strait_reduction *reduction = runner->reduction;
    int64_t moved = strait_clock_ns(), n_posted = strait_reduction_posted(reduction);
    for (;;) {
        int is_blocked = 0;
        STRAIT_TRY(strait_reduction_send(reduction, &is_blocked));
        if (strait_reduction_is_done(reduction)) return STRAIT_OK;
        const strait_err err = strait_runner_drain(runner, is_blocked ? RETRY_MS : timeout_ms);
        if (err != STRAIT_ETIMEDOUT) STRAIT_TRY(err);
        const int64_t now = strait_clock_ns();
        if (err == STRAIT_OK || strait_reduction_posted(reduction) != n_posted) moved = now;
        n_posted = strait_reduction_posted(reduction);
        if (err == STRAIT_ETIMEDOUT &&
            (!is_blocked || now - moved >= (int64_t)timeout_ms * 1000000))
            return fail_silent(runner, step, timeout_ms);
    }
}

strait_err strait_runner_reduce(struct strait_runner *runner, int64_t step, double computed_s) {
    const int timeout_ms = runner->deadline_ms + (int)(computed_s * 1e3);
    struct strait_stream *stream = strait_stage_stream(runner->model);
    STRAIT_TRY(strait_reduction_complete(runner->reduction, stream));
    STRAIT_TRY(strait_runner_exchange_sums(runner, step, timeout_ms));
    runner->is_waiting = 0;
    return strait_reduction_finish(runner->reduction, stream);
}

/* In double precision and in the order of tokens: a sequence is never divided. */
void strait_runner_sum_losses(struct strait_runner *runner) {
    const int64_t n = runner->plan.microbatch, context = runner->plan.shape.context;
    for (int i = 0; i < runner->n_microbatches; i++)
        for (int64_t k = 0; k < n; k++) {
            const int64_t sequence = runner->microbatches[i] * n + k;
            const float *losses = runner->losses + sequence * context;
            double sum = 0.0;
            for (int64_t t = 0; t < context; t++)
                sum += (double)losses[t];
            runner->sequence_losses[sequence] = sum;
        }
}

/* What all replicas together should have: in the place where they would have reduced it. */
strait_err strait_runner_end_audited(struct strait_runner *runner) {
    STRAIT_TRY(runner->backend->ops->wait(strait_stage_stream(runner->model)));
    if (runner->sender == NULL) strait_runner_sum_losses(runner);
    return strait_sums_hash_end(runner->work, &runner->audited);
}

double strait_runner_add_losses(const struct strait_runner *runner) {
    double sum = 0.0;
    for (int64_t i = 0; i < runner->plan.sequences; i++)
        sum += runner->sequence_losses[i];
    return sum;
}
