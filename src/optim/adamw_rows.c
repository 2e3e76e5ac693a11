/* adamw_rows.c - AdamW with one second moment per input unit: per column of a matrix
 * [outputs x inputs], per row (token) of a table.
 *
 * The update is then a scalar times the first moment for everything that one input contributes, so
 * weights whose gradients lie in a subspace stay in it: the subspace codec relies on that. By
 * default only the weights that it constrains share moments, because others learn better with their
 * own. */
#include "optim/adamw.h"

/* By the role alone, and so also on the last stage, which constrains nothing: state must not depend
 * on where the model is cut. Gains have no input unit. */
static int is_shared(strait_row_moments moments, strait_role role) {
    if (moments == STRAIT_ROWS_ALL) return !strait_role_is_gain(role);
    return role == STRAIT_ROLE_RESIDUAL_OUT || role == STRAIT_ROLE_EMBEDDING;
}

static int describe_states(const strait_optim_spec *spec, const strait_param *param,
                           strait_optim_state_spec out[STRAIT_OPTIM_STATES]) {
    const strait_tensor w = param->value;
    const int shares = is_shared(spec->row_moments, param->role);
    const int is_table = strait_role_is_table(param->role); // its inputs are tokens, one row each
    out[0] = (strait_optim_state_spec){'m', STRAIT_F32, w.rows, w.cols, .is_linear = 1};
    out[1] = (strait_optim_state_spec){.letter = 'v',
                                       .dtype = STRAIT_F32,
                                       .rows = shares && !is_table ? 1 : w.rows,
                                       .cols = shares && is_table ? 1 : w.cols};
    return 2;
}

const struct strait_optimizer_ops strait_optimizer_adamw_rows = {
    .name = "adamw-rows",
    .states = describe_states,
    .scratch_size = sizeof(struct strait_adamw_scratch),
    .plan = strait_adamw_plan,
    .release = strait_adamw_release,
    .step = strait_adamw_step,
    .checks_norm = 1,
};
