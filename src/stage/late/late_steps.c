/* late_steps.c - a runner whose updates are one step late.
 *
 * While a step is computed, the command of the next one may come, and with it the update of the
 * step before. The runner then applies that update and, where it would wait, runs forward passes of
 * the next step. The gradients of a step are put aside when they are complete, because those of the
 * next step may be added before the coordinator knows the norm.
 *
 * Stages behind the late ones update at the end of every step, before the coordinator knows whether
 * the gradients of the others are finite. */
#include "stage/runner.h"

#include <math.h>

/* Only the first stages may be late (train.late_stages). */
static int is_late(const strait_run_plan *plan, int stage) {
    return stage < plan->n_late;
}

/* A single stage applies an update before it begins the next step. */
static int keeps_gradients(const strait_run_plan *plan) {
    return plan->n_stages > 1;
}

strait_err strait_runner_late_memory(const strait_run_plan *plan, int stage,
                                     const strait_param *params, int n,
                                     strait_runner_memory *memory) {
    strait_late_memory late = {0, 0};
    const strait_late_spec spec = {
        .params = params, .n_params = n, .keeps_gradients = keeps_gradients(plan)};
    if (!is_late(plan, stage)) return STRAIT_OK;
    STRAIT_TRY(strait_late_plan(&spec, &late));
    memory->weights += late.weights;
    memory->gradients += late.gradients;
    return STRAIT_OK;
}

static struct strait_codec *codec_of(struct strait_boundary *boundary) {
    return boundary != NULL ? strait_boundary_codec(boundary) : NULL;
}

strait_err strait_runner_open_late(struct strait_runner *runner) {
    const strait_late_spec spec = {.params = runner->params,
                                   .n_params = runner->n_params,
                                   .model = runner->model,
                                   .receiver = codec_of(runner->receiver),
                                   .sender = codec_of(runner->sender),
                                   .extrapolation = runner->plan.extrapolation,
                                   .keeps_gradients = keeps_gradients(&runner->plan)};
    runner->ahead = (struct strait_runner_ahead){.complete = -1, .kept = -1};
    if (!is_late(&runner->plan, runner->stage)) return STRAIT_OK;
    return strait_late_open(&spec, runner->backend, &runner->late);
}

strait_err strait_runner_start_late(struct strait_runner *runner, int64_t step, int with_versions) {
    runner->ahead = (struct strait_runner_ahead){.n_updates = step, .complete = -1, .kept = -1};
    if (runner->late == NULL || with_versions) return STRAIT_OK;
    return strait_late_start(runner->late, strait_stage_stream(runner->model));
}

/* Puts complete gradients aside as soon as there is memory for them. */
static strait_err keep_gradients(struct strait_runner *runner) {
    struct strait_runner_ahead *ahead = &runner->ahead;
    if (!keeps_gradients(&runner->plan) || ahead->complete < 0 || ahead->kept >= 0)
        return STRAIT_OK;
    ahead->kept = ahead->complete;
    ahead->complete = -1;
    return strait_late_keep_gradients(runner->late, strait_stage_stream(runner->model));
}

/* The update that frees the memory aside comes with the command of a step at the latest. */
strait_err strait_runner_begin_late(struct strait_runner *runner) {
    runner->ahead.n_begun = runner->ahead.n_forward;
    runner->ahead.n_forward = runner->ahead.is_allowed = 0;
    STRAIT_TRY(keep_gradients(runner));
    if (runner->ahead.complete >= 0)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "stage %d: a step began before the update of step %lld was sent",
                           runner->stage, (long long)runner->ahead.complete);
    return STRAIT_OK;
}

/* On the last stage a backward pass follows each forward pass at once, so that no step can begin
 * there before the one before has ended. */
strait_err strait_runner_look_ahead(struct strait_runner *runner, int64_t step) {
    strait_next_step next = {.update_step = -1};
    if (runner->late == NULL || runner->ahead.is_allowed || runner->sender == NULL ||
        runner->on_next == NULL || !runner->on_next(runner->user, step + 1, &next))
        return STRAIT_OK;
    runner->ahead.is_allowed = 1;
    return next.update_step < 0 ? STRAIT_OK
                                : strait_runner_update(runner, next.update_step, next.factor);
}

strait_err strait_runner_enter(struct strait_runner *runner, int *microbatch, int64_t *step) {
    if (runner->late == NULL) return STRAIT_OK;
    if (*microbatch >= runner->n_microbatches) {
        *microbatch -= runner->n_microbatches;
        (*step)++;
    }
    return strait_late_select(runner->late, strait_stage_stream(runner->model), *step);
}

/* The step's version is selected once more, so that the codecs report what they counted in it. */
strait_err strait_runner_end_late(struct strait_runner *runner, int64_t step, int n_forward) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->late == NULL) return STRAIT_OK;
    runner->ahead.n_forward = n_forward - runner->n_microbatches;
    if (keeps_gradients(&runner->plan)) runner->ahead.complete = step;
    STRAIT_TRY(strait_late_select(runner->late, stream, step));
    return strait_late_select(runner->late, stream, STRAIT_LATE_CURRENT);
}

/* Both values of the scale are set: the norm there is by now that of a later step. */
strait_err strait_runner_update_late(struct strait_runner *runner, int64_t step, float factor) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    const strait_tensor scale = strait_optimizer_scale(runner->optimizer);
    if (step < runner->ahead.n_updates) return STRAIT_OK;
    if (runner->late != NULL) STRAIT_TRY(keep_gradients(runner));
    if (runner->late == NULL || (keeps_gradients(&runner->plan) && runner->ahead.kept != step))
        return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: an update of step %lld, expected %lld",
                           runner->stage, (long long)step, (long long)runner->ahead.kept);
    STRAIT_TRY(runner->backend->kernels->fill(stream, scale, factor));
    if (factor > 0) {
        STRAIT_TRY(strait_runner_update_by_scale(runner, step));
    } else {
        STRAIT_TRY(strait_late_begin_update(runner->late, stream, step));
        STRAIT_TRY(strait_late_end_update(runner->late, stream, step));
    }
    runner->ahead.n_updates = step + 1;
    runner->ahead.kept = -1;
    return keep_gradients(runner);
}

/* The coordinator's command for the same update comes later, and is ignored then. */
strait_err strait_runner_update_at_once(struct strait_runner *runner, int64_t step, int is_usable) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (runner->plan.staleness == 0 || runner->late != NULL) return STRAIT_OK;
    for (int i = 0; i < runner->n_params; i++)
        is_usable = is_usable && isfinite(runner->squares[i]);
    runner->ahead.n_updates = step + 1;
    if (!is_usable) return STRAIT_OK;
    STRAIT_TRY(
        runner->backend->kernels->fill(stream, strait_optimizer_scale(runner->optimizer), 1));
    return strait_runner_update_by_scale(runner, step);
}
