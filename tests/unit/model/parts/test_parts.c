/* test_parts.c - optional parts for tests: a factor per channel of the residual stream and of the
 * mlp's output, which keep their inputs, and a matrix on attention's output, which works in place.
 * Together with the parts of the program they use everything that part.h offers. */
#include "model/parts/part.h"

static int has_scale(const strait_shape *s, int i) {
    return s->has_test_scale && strait_shape_has_local(s, i);
}

static int has_mlp_scale(const strait_shape *s, int i) {
    (void)i;
    return s->has_test_mlp_scale;
}

static int has_mix(const strait_shape *s, int i) {
    return s->has_test_mix && i != 1; // not in all blocks of a stage
}

static int scale_params(const strait_shape *s, strait_part_param *out) {
    out[0] = (strait_part_param){"test_scale", STRAIT_ROLE_CONV, 1, s->width};
    return 1;
}

static int mlp_scale_params(const strait_shape *s, strait_part_param *out) {
    out[0] = (strait_part_param){"test_mlp_scale", STRAIT_ROLE_CONV, 1, s->width};
    return 1;
}

static int mix_params(const strait_shape *s, strait_part_param *out) {
    out[0] = (strait_part_param){"test_mix", STRAIT_ROLE_MATRIX, s->width, s->width};
    return 1;
}

/* y = x + w x: a convolution of one tap. */
static strait_err scale(const strait_work *work, const strait_part *part,
                        const strait_part_acts *acts, strait_tensor y, strait_tensor x) {
    (void)acts;
    return work->kernels->conv->forward(work->stream, y, x, part->params[0]->value, work->seq_len);
}

static strait_err scale_back(const strait_work *work, const strait_part *part,
                             const strait_part_acts *acts, strait_tensor d, strait_tensor scratch) {
    const strait_param *w = part->params[0];
    STRAIT_TRY(work->kernels->conv->back(work->stream, scratch, w->grad, d, acts->input, w->value,
                                         work->seq_len));
    return work->kernels->cast(work->stream, d, scratch);
}

static strait_err plan_mix(const strait_shape *shape, int64_t n, struct strait_slab *slab,
                           strait_part_acts *acts) {
    return strait_layer_plan_acts(shape, slab, n, shape->width, &acts->kept[0]);
}

/* x += x M^T, of a copy of x. */
static strait_err mix(const strait_work *work, const strait_part *part,
                      const strait_part_acts *acts, strait_tensor y, strait_tensor x) {
    STRAIT_TRY(work->kernels->cast(work->stream, acts->kept[0], x));
    return work->kernels->matmul(
        work->stream, y, acts->kept[0], part->params[0]->compute,
        (strait_matmul_params){
            .transpose_b = 1, .alpha = 1.0f, .beta = 1.0f, .is_rowwise = work->is_rowwise});
}

static strait_err mix_back(const strait_work *work, const strait_part *part,
                           const strait_part_acts *acts, strait_tensor d, strait_tensor scratch) {
    const strait_param *m = part->params[0];
    STRAIT_TRY(strait_layer_linear_weight_grad(work, m->grad, d, acts->kept[0]));
    STRAIT_TRY(strait_layer_linear_backward(work, scratch, d, m->compute));
    return work->kernels->add(work->stream, d, d, scratch);
}

const struct strait_part_ops strait_part_test_scale = {
    .option = "model.test_scale",
    .keeps_input = 1,
    .needs_scratch = 1,
    .needs = STRAIT_NEEDS_CONV,
    .is_in_block = has_scale,
    .params = scale_params,
    .forward = scale,
    .backward = scale_back,
};

const struct strait_part_ops strait_part_test_mlp_scale = {
    .option = "model.test_mlp_scale",
    .keeps_input = 1,
    .needs_scratch = 1,
    .needs = STRAIT_NEEDS_CONV,
    .is_in_block = has_mlp_scale,
    .params = mlp_scale_params,
    .forward = scale,
    .backward = scale_back,
};

const struct strait_part_ops strait_part_test_mix = {
    .option = "model.test_mix",
    .needs_scratch = 1,
    .is_in_block = has_mix,
    .params = mix_params,
    .plan_acts = plan_mix,
    .forward = mix,
    .backward = mix_back,
};
