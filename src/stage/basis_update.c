/* basis_update.c - updates the basis that all stages of the subspace codec share, and rewrites
 * everything that is stored in coordinates of that basis. */
#include "base/alloc.h"
#include "codec/basis.h"
#include "stage/runner.h"

#include <string.h>

int strait_run_plan_updates_basis(const strait_run_plan *plan, int64_t step) {
    return plan->n_stages > 1 && strait_codec_basis_is_due(&plan->codec, step);
}

/* A proposal uses up what it was computed from: one that is asked for again is the same. */
strait_err strait_runner_propose_basis(struct strait_runner *runner, float *out) {
    const int is_known = runner->live.has_proposed;
    if (runner->receiver == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "stage 0 cannot propose a basis: it has no previous stage");
    if (!is_known)
        STRAIT_TRY(strait_codec_basis_propose(strait_boundary_codec(runner->receiver),
                                              strait_stage_stream(runner->model), out));
    runner->live.has_proposed = runner->live.awaits_basis;
    return STRAIT_OK;
}

/* Rewrites the optimizer's state of a parameter: first moments are linear in the gradients, second
 * moments are averages of their squares. */
static strait_err rotate_states(struct strait_runner *runner, struct strait_codec *codec,
                                const strait_param *param) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    for (int i = 0; i < strait_optimizer_n_states(runner->optimizer); i++) {
        strait_optim_state state;
        STRAIT_TRY(strait_optimizer_state(runner->optimizer, i, &state));
        if (strcmp(state.param->name, param->name) != 0) continue;
        STRAIT_TRY(strait_codec_basis_carry_over(
            codec, stream, param->role, state.is_linear ? STRAIT_BASIS_MOMENT : STRAIT_BASIS_SQUARE,
            state.tensor));
    }
    return STRAIT_OK;
}

/* Rewrites a weight, if it is stored in coordinates of the basis, and its optimizer state. */
static strait_err rewrite_param(struct strait_runner *runner, struct strait_codec *codec,
                                const strait_param *param) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    if (!strait_codec_basis_has_role(param->role)) return STRAIT_OK;
    STRAIT_TRY(strait_codec_basis_carry_over(codec, stream, param->role, STRAIT_BASIS_WEIGHT,
                                             param->value));
    return rotate_states(runner, codec, param);
}

strait_err strait_runner_adopt_basis(struct strait_runner *runner, const float *basis,
                                     uint32_t version) {
    struct strait_stream *stream = strait_stage_stream(runner->model);
    int n = 0;
    const strait_param *params = strait_stage_params(runner->model, &n);
    struct strait_boundary *any = runner->sender != NULL ? runner->sender : runner->receiver;
    if (any != NULL && strait_codec_version(strait_boundary_codec(any)) == version)
        return STRAIT_OK;
    runner->has_initial_weights = 0;
    if (runner->receiver != NULL)
        STRAIT_TRY(strait_codec_basis_adopt(strait_boundary_codec(runner->receiver), stream, basis,
                                            version));
    if (runner->sender == NULL) { // the last stage has no such weights
        strait_runner_note_basis(runner, version);
        return runner->backend->ops->wait(stream);
    }
    struct strait_codec *sender = strait_boundary_codec(runner->sender);
    STRAIT_TRY(strait_codec_basis_adopt(sender, stream, basis, version));
    for (int i = 0; i < n; i++)
        STRAIT_TRY(rewrite_param(runner, sender, &params[i]));
    STRAIT_TRY(strait_stage_refresh(runner->model));
    strait_runner_note_basis(runner, version);
    return runner->backend->ops->wait(stream);
}
