#include "model/parts/local_conv.h"

strait_err strait_local_conv_add_params(struct strait_param_list *list, strait_local_conv *out) {
    const strait_shape *s = list->shape;
    if (s->conv == 0 || !strait_shape_has_local(s, list->block)) return STRAIT_OK;
    return strait_param_list_add(list, "conv", STRAIT_ROLE_CONV, s->conv, s->width, &out->taps);
}

strait_err strait_local_conv_plan_acts(const strait_shape *shape, int64_t n,
                                       struct strait_slab *slab, strait_local_conv_acts *out) {
    return strait_layer_plan_acts(shape, slab, n, shape->width, &out->input);
}

strait_err strait_local_conv_forward(const strait_work *work, const strait_local_conv *part,
                                     const strait_local_conv_acts *acts, strait_tensor x) {
    if (part->taps == NULL) return STRAIT_OK;
    return strait_layer_conv(work, x, acts->input, part->taps->value, acts->past);
}

strait_err strait_local_conv_backward(const strait_work *work, const strait_local_conv *part,
                                      const strait_local_conv_acts *acts, strait_tensor d,
                                      strait_tensor scratch) {
    const struct strait_kernels *k = work->kernels;
    if (part->taps == NULL) return STRAIT_OK;
    /* The kernel cannot work in place: a tap reads gradients of later tokens. */
    STRAIT_TRY(k->conv->back(work->stream, scratch, part->taps->grad, d, acts->input,
                             part->taps->value, work->seq_len));
    return k->cast(work->stream, d, scratch);
}
