/* share.c - the part of a step that one replica of a stage computes: its microbatches, the sums of
 * their gradients by groups, and their losses. */
#include "stage/runner.h"

void strait_runner_share(struct strait_runner *runner, const strait_group_owners *owners) {
    runner->n_microbatches = strait_groups_list(&runner->plan.groups, owners, runner->replica,
                                                runner->microbatches);
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

strait_err strait_runner_sum_gradients(struct strait_runner *runner, int i, int is_deferred) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    const int group = group_of(runner, i);
    const int is_last = i + 1 == runner->n_microbatches;
    if (!runner->plan.sums_pairwise || (!is_last && group_of(runner, i + 1) == group))
        return STRAIT_OK;
    STRAIT_TRY(strait_gradient_sums_add(&runner->sums, stream, is_deferred, group));
    if (is_last) return STRAIT_OK;
    STRAIT_TRY(strait_gradient_sums_put_aside(&runner->sums, stream, is_deferred));
    return restart(runner, is_deferred);
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

double strait_runner_add_losses(const struct strait_runner *runner) {
    double sum = 0.0;
    for (int64_t i = 0; i < runner->plan.sequences; i++)
        sum += runner->sequence_losses[i];
    return sum;
}
