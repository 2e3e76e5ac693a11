/* mlp.c - norm, optional convolution, projection up, activation, projection down. Gate and up
 * projection lie side by side in memory, so that one product computes both. */
#include "model/parts/mlp.h"

#include "model/parts/entry.h"

strait_err strait_mlp_add_params(struct strait_param_list *list, strait_mlp *out) {
    const strait_shape *s = list->shape;
    const int64_t d = s->width;
    STRAIT_TRY(strait_param_list_add(list, "mlp.norm", STRAIT_ROLE_GAIN, 1, d, &out->norm));
    if (s->activation == STRAIT_SWIGLU) {
        STRAIT_TRY(
            strait_param_list_add(list, "mlp.gate", STRAIT_ROLE_MATRIX, s->ffn, d, &out->gate));
        STRAIT_TRY(strait_param_list_add_adjacent(list, "mlp.up", STRAIT_ROLE_MATRIX, s->ffn, d,
                                                  &out->up));
    } else {
        STRAIT_TRY(strait_param_list_add(list, "mlp.up", STRAIT_ROLE_MATRIX, s->ffn, d, &out->up));
    }
    if (s->conv > 0)
        STRAIT_TRY(
            strait_param_list_add(list, "mlp.conv", STRAIT_ROLE_CONV, s->conv, d, &out->conv));
    return strait_param_list_add(list, "mlp.down", STRAIT_ROLE_RESIDUAL_OUT,
                                 list->residual_out_rows, s->ffn, &out->down);
}

strait_err strait_mlp_plan_acts(const strait_shape *shape, int64_t n, int keeps_hidden,
                                struct strait_slab *slab, strait_mlp_acts *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    if (shape->conv > 0 && !shape->fuses_conv)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->before_conv));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, strait_shape_mlp_cols(shape), &out->pre_act));
    return keeps_hidden ? strait_layer_plan_acts(shape, slab, n, shape->ffn, &out->hidden)
                        : STRAIT_OK;
}

/* Gate and up projection as one matrix, or up alone. */
static strait_tensor in_projection(const strait_mlp *layer, int is_grad) {
    const strait_tensor up = is_grad ? layer->up->grad : layer->up->compute;
    if (layer->gate == NULL) return up;
    const strait_tensor matrices[] = {is_grad ? layer->gate->grad : layer->gate->compute, up};
    return strait_layer_join(matrices, 2);
}

strait_err strait_mlp_forward(const strait_work *work, const strait_mlp *layer,
                              strait_mlp_acts *acts, strait_tensor branch, strait_tensor sum,
                              strait_tensor x, strait_tensor delta) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(strait_entry_forward(work, STRAIT_ENTRY(layer, acts), sum, x, delta));
    STRAIT_TRY(strait_layer_linear(work, acts->pre_act, acts->normed, in_projection(layer, 0)));
    if (work->shape->activation == STRAIT_SWIGLU)
        STRAIT_TRY(k->swiglu(work->stream, acts->hidden, acts->pre_act));
    else
        STRAIT_TRY(k->relu2(work->stream, acts->hidden, acts->pre_act));
    return strait_layer_residual_out(work, branch, acts->hidden, layer->down->compute);
}

strait_err strait_mlp_backward(const strait_work *work, const strait_mlp *layer,
                               const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                               strait_tensor d_branch, int defers) {
    const struct strait_kernels *k = work->kernels;
    const strait_tensor d_hidden = scratch->hidden;
    /* Hidden activations that were not kept shared their memory with d_hidden: the kernel computes
     * them again, in place, for the weight gradient. */
    const int is_shared = acts->hidden.data == d_hidden.data;
    const strait_tensor hidden = is_shared ? d_hidden : (strait_tensor){0};
    /* The kernels replace pre_act by its gradient: weight_grads finds it there. */
    STRAIT_TRY(strait_layer_residual_out_backward(work, d_hidden, d_branch, layer->down->compute));
    if (work->shape->activation == STRAIT_SWIGLU)
        STRAIT_TRY(k->swiglu_back(work->stream, acts->pre_act, hidden, d_hidden, acts->pre_act));
    else
        STRAIT_TRY(k->relu2_back(work->stream, acts->pre_act, hidden, d_hidden, acts->pre_act));
    if (!defers) STRAIT_TRY(strait_mlp_weight_grads(work, layer, acts, d_branch));
    STRAIT_TRY(strait_layer_linear_backward(work, scratch->d_normed, acts->pre_act,
                                            in_projection(layer, 0)));
    return strait_entry_conv_backward(work, STRAIT_ENTRY(layer, acts), scratch->d_before_conv,
                                      scratch->d_normed);
}

strait_err strait_mlp_norm_backward(const strait_work *work, const strait_mlp *layer,
                                    const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                                    strait_tensor x, strait_tensor d) {
    return strait_entry_backward(work, STRAIT_ENTRY(layer, acts), scratch->d_before_conv,
                                 scratch->d_normed, x, d);
}

strait_err strait_mlp_weight_grads(const strait_work *work, const strait_mlp *layer,
                                   const strait_mlp_acts *acts, strait_tensor d_branch) {
    if (!layer->down->is_idle)
        STRAIT_TRY(
            strait_layer_residual_out_weight_grad(work, layer->down->grad, d_branch, acts->hidden));
    if (layer->up->is_idle) return STRAIT_OK;
    return strait_layer_linear_weight_grad(work, in_projection(layer, 1), acts->pre_act,
                                           acts->normed);
}
