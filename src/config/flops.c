#include "config/flops.h"

/* Weights that one token is multiplied with at a boundary, including the bottleneck ends of the
 * blocks beside it. Rows of tables are looked up and cost nothing. */
static strait_err boundary_weights(const strait_run_plan *plan, int boundary, double *out) {
    double sum = 2.0 * plan->shape.bottleneck * plan->shape.width; // one bottleneck end per side
    for (int side = 0; side < 2; side++) {
        strait_param params[STRAIT_CODEC_PARAMS];
        const int stage = side == STRAIT_SENDER ? boundary : boundary + 1;
        int n = 0;
        STRAIT_TRY(strait_run_plan_codec_params(plan, stage, (strait_codec_side)side, params, &n));
        for (int i = 0; i < n; i++)
            if (!strait_role_is_table(params[i].role))
                sum += (double)params[i].value.rows * (double)params[i].value.cols;
    }
    *out = sum;
    return STRAIT_OK;
}

/* Three products per weight: forward, gradient of the input, gradient of the weight; two operations
 * each. */
strait_err strait_flops_train(const strait_run_plan *plan, double *out) {
    double sum = strait_shape_train_flops(&plan->shape);
    for (int boundary = 0; boundary < plan->n_stages - 1; boundary++) {
        double weights = 0;
        STRAIT_TRY(boundary_weights(plan, boundary, &weights));
        sum += 6.0 * weights + strait_codec_fixed_flops(&plan->codec, STRAIT_FORWARD) +
               strait_codec_fixed_flops(&plan->codec, STRAIT_BACKWARD);
    }
    *out = sum;
    return STRAIT_OK;
}

strait_err strait_flops_crossing(const strait_run_plan *plan, double *out) {
    double weights = 0;
    *out = 0;
    if (plan->n_stages == 1) return STRAIT_OK;
    STRAIT_TRY(boundary_weights(plan, 0, &weights));
    *out = 2.0 * weights + strait_codec_fixed_flops(&plan->codec, STRAIT_FORWARD);
    return STRAIT_OK;
}
