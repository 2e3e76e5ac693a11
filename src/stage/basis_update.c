/* turn.c - the shared basis of the subspace codec turns, and everything written in it with it. */
#include "base/alloc.h"
#include "codec/basis.h"
#include "stage/runner.h"

#include <string.h>

int strait_run_plan_updates_basis(const strait_run_plan *plan, int64_t step) {
    return plan->n_stages > 1 && strait_codec_basis_is_due(&plan->codec, step);
}

strait_err strait_runner_propose_basis(struct strait_runner *w, float *out) {
    if (w->receiver == NULL) return STRAIT_FAIL(STRAIT_EINVAL, "the first stage turns no basis");
    return strait_codec_basis_propose(strait_boundary_codec(w->receiver),
                                      strait_stage_stream(w->model), out);
}

/* Rewrites the optimizer's state of a parameter: what is linear in the gradients is rotated, the
 * rest (second moments) belongs to the old directions and is reset. */
static strait_err rotate_states(struct strait_runner *w, struct strait_codec *codec,
                                const strait_param *param) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    for (int i = 0; i < strait_optimizer_n_states(w->optimizer); i++) {
        strait_optim_state state;
        STRAIT_TRY(strait_optimizer_state(w->optimizer, i, &state));
        if (strcmp(state.param->name, param->name) != 0) continue;
        STRAIT_TRY(state.is_linear
                       ? strait_codec_basis_carry_over(codec, stream, param->role,
                                                       STRAIT_BASIS_MOMENT, state.tensor)
                       : w->backend->kernels->fill(stream, state.tensor, 0.0f));
    }
    return STRAIT_OK;
}

/* Rewrites a weight that is stored in coordinates of the basis, and its optimizer state. */
static strait_err carry(struct strait_runner *w, struct strait_codec *codec,
                        const strait_param *param) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    if (!strait_codec_basis_has_role(param->role)) return STRAIT_OK;
    STRAIT_TRY(strait_codec_basis_carry_over(codec, stream, param->role, STRAIT_BASIS_WEIGHT,
                                             param->value));
    return rotate_states(w, codec, param);
}

strait_err strait_runner_adopt_basis(struct strait_runner *w, const float *basis,
                                     uint32_t version) {
    struct strait_stream *stream = strait_stage_stream(w->model);
    int n = 0;
    const strait_param *params = strait_stage_params(w->model, &n);
    w->is_untouched = 0;
    if (w->receiver != NULL)
        STRAIT_TRY(
            strait_codec_basis_adopt(strait_boundary_codec(w->receiver), stream, basis, version));
    if (w->sender == NULL) return w->backend->ops->wait(stream); // the last stage is free
    struct strait_codec *sender = strait_boundary_codec(w->sender);
    STRAIT_TRY(strait_codec_basis_adopt(sender, stream, basis, version));
    for (int i = 0; i < n; i++)
        STRAIT_TRY(carry(w, sender, &params[i]));
    STRAIT_TRY(strait_stage_refresh(w->model));
    return w->backend->ops->wait(stream);
}
