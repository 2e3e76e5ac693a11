#include "model/mlp.h"

strait_err strait_mlp_plan_acts(const strait_shape *shape, int64_t n, int keeps,
                                struct strait_slab *slab, strait_mlp_acts *out) {
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    if (shape->conv > 0)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->plain));
    STRAIT_TRY(strait_layer_plan(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, strait_shape_hidden(shape), &out->wide));
    return keeps ? strait_layer_plan_acts(shape, slab, n, shape->ffn, &out->hidden) : STRAIT_OK;
}

static strait_tensor first_matrix(const strait_mlp *layer, int is_grad) {
    const strait_tensor up = is_grad ? layer->up->grad : layer->up->compute;
    if (layer->gate == NULL) return up;
    const strait_tensor parts[] = {is_grad ? layer->gate->grad : layer->gate->compute, up};
    return strait_layer_join(parts, 2);
}

strait_err strait_mlp_forward(const strait_work *work, const strait_mlp *layer,
                              strait_mlp_acts *acts, strait_tensor branch, strait_tensor sum,
                              strait_tensor x, strait_tensor delta) {
    const struct strait_kernels *k = work->kernels;
    STRAIT_TRY(k->rmsnorm(work->stream, layer->conv != NULL ? acts->plain : acts->normed, sum,
                          acts->rstd, x, delta, strait_layer_norm(work, layer->norm)));
    if (layer->conv != NULL)
        STRAIT_TRY(
            strait_layer_conv(work, acts->normed, acts->plain, layer->conv->value, acts->past));
    STRAIT_TRY(strait_layer_linear(work, acts->wide, acts->normed, first_matrix(layer, 0)));
    if (work->shape->activation == STRAIT_SWIGLU)
        STRAIT_TRY(k->swiglu(work->stream, acts->hidden, acts->wide));
    else
        STRAIT_TRY(k->relu2(work->stream, acts->hidden, acts->wide));
    return strait_layer_write(work, branch, acts->hidden, layer->down->compute);
}

strait_err strait_mlp_back(const strait_work *work, const strait_mlp *layer,
                           const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                           strait_tensor d_branch, int defers) {
    const struct strait_kernels *k = work->kernels;
    const strait_tensor d_hidden = scratch->hidden;
    const int is_lost = acts->hidden.data == d_hidden.data;
    const strait_tensor again = is_lost ? d_hidden : (strait_tensor){0};
    STRAIT_TRY(strait_layer_write_back(work, d_hidden, d_branch, layer->down->compute));
    if (work->shape->activation == STRAIT_SWIGLU)
        STRAIT_TRY(k->swiglu_back(work->stream, acts->wide, again, d_hidden, acts->wide));
    else
        STRAIT_TRY(k->relu2_back(work->stream, acts->wide, again, d_hidden, acts->wide));
    if (!defers) STRAIT_TRY(strait_mlp_weights(work, layer, acts, d_branch));
    STRAIT_TRY(
        strait_layer_linear_back(work, scratch->d_normed, acts->wide, first_matrix(layer, 0)));
    if (layer->conv == NULL) return STRAIT_OK;
    return k->conv->back(work->stream, scratch->d_plain, layer->conv->grad, scratch->d_normed,
                         acts->plain, layer->conv->value, work->seq_len);
}

strait_err strait_mlp_norm_back(const strait_work *work, const strait_mlp *layer,
                                const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                                strait_tensor x, strait_tensor d) {
    return work->kernels->rmsnorm_back(work->stream, d, layer->norm->grad,
                                       layer->conv != NULL ? scratch->d_plain : scratch->d_normed,
                                       x, layer->norm->value, acts->rstd);
}

strait_err strait_mlp_weights(const strait_work *work, const strait_mlp *layer,
                              const strait_mlp_acts *acts, strait_tensor d_branch) {
    STRAIT_TRY(strait_layer_write_weight(work, layer->down->grad, d_branch, acts->hidden));
    return strait_layer_linear_weight(work, first_matrix(layer, 1), acts->wide, acts->normed);
}
