#include "config/flops.h"

#include <string.h>

static int is_codec(const strait_run_plan *plan, const char *name) {
    return strcmp(plan->codec.name, name) == 0;
}

/* Weights that a token meets at the boundary behind a stage, in the blocks beside it included; a
 * table's row is looked up. */
static strait_err boundary_weights(const strait_run_plan *plan, int boundary, double *out) {
    double sum = 2.0 * plan->shape.bottleneck * plan->shape.width; // a neck at each side
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

/* The same for codecs that have nothing to train, one way. A subspace's basis narrows and widens,
 * and forward widens once more to see what was lost; lowrank's factors are made by two products
 * and joined by one. */
static double fixed_weights(const strait_run_plan *plan, strait_direction direction) {
    const double width = (double)plan->codec.cols;
    const double products = direction == STRAIT_FORWARD ? 3 : 2;
    if (is_codec(plan, "subspace")) return products * (double)plan->codec.keep * width;
    if (is_codec(plan, "lowrank")) return 3.0 * (double)plan->codec.rank * width;
    return 0;
}

strait_err strait_flops_train(const strait_run_plan *plan, double *out) {
    double sum = strait_shape_train_flops(&plan->shape);
    for (int boundary = 0; boundary < plan->n_stages - 1; boundary++) {
        double weights = 0;
        STRAIT_TRY(boundary_weights(plan, boundary, &weights));
        sum += 6.0 * weights + 2.0 * fixed_weights(plan, STRAIT_FORWARD) +
               2.0 * fixed_weights(plan, STRAIT_BACKWARD);
    }
    *out = sum;
    return STRAIT_OK;
}

strait_err strait_flops_crossing(const strait_run_plan *plan, double *out) {
    double weights = 0;
    if (plan->n_stages > 1) {
        STRAIT_TRY(boundary_weights(plan, 0, &weights));
        weights += fixed_weights(plan, STRAIT_FORWARD);
    }
    *out = 2.0 * weights;
    return STRAIT_OK;
}
