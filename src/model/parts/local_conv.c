/* local_conv.c - a short causal convolution of the residual stream before a block: each token sees
 * the few before it at little cost.
 *
 *   x_i = s_i + sum over j of w_j s_{i-j}
 *
 * Blocks with local parts have one (strait_shape_has_local) if model.conv is not 0 and
 * model.inner_conv is off. Taps start at
 * 0: at first x is s. */
#include "model/parts/part.h"

enum {
    TAPS // [taps x D]
};

static int is_in_block(const strait_shape *s, int i) {
    return s->conv > 0 && !s->has_inner_conv && strait_shape_has_local(s, i);
}

static int params(const strait_shape *s, strait_part_param *out) {
    out[TAPS] = (strait_part_param){"conv", STRAIT_ROLE_CONV, s->conv, s->width};
    return 1;
}

static int64_t past_rows(const strait_shape *s) {
    (void)s;
    return STRAIT_CONV_RING;
}

static strait_err forward(const strait_work *work, const strait_part *part,
                          const strait_part_acts *acts, strait_tensor y, strait_tensor x) {
    return strait_layer_conv(work, y, x, part->params[TAPS]->value, acts->past);
}

static strait_err backward(const strait_work *work, const strait_part *part,
                           const strait_part_acts *acts, strait_tensor d, strait_tensor scratch) {
    const struct strait_kernels *k = work->kernels;
    const strait_param *taps = part->params[TAPS];
    /* The kernel cannot work in place: a tap reads gradients of later tokens. */
    STRAIT_TRY(k->conv->back(work->stream, scratch, taps->grad, d, acts->input, taps->value,
                             work->seq_len));
    return k->cast(work->stream, d, scratch);
}

const struct strait_part_ops strait_part_local_conv = {
    .option = "model.conv",
    .keeps_input = 1,
    .needs_scratch = 1,
    .needs = STRAIT_NEEDS_CONV,
    .is_in_block = is_in_block,
    .params = params,
    .past_rows = past_rows,
    .forward = forward,
    .backward = backward,
};
