#include "model/attention.h"

strait_err strait_attention_plan_acts(const strait_shape *shape, int64_t n,
                                      struct strait_slab *slab, strait_attention_acts *out) {
    const int64_t qkv = strait_shape_qkv(shape);
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    if (shape->conv > 0)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->plain));
    STRAIT_TRY(strait_layer_plan(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->qkv));
    STRAIT_TRY(strait_layer_plan(slab, n, shape->heads, &out->lse));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, strait_shape_mixed(shape), &out->mixed));
    if (shape->has_qkv_conv)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->projected));
    if (shape->has_qkv_conv || shape->has_qk_norm)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->raw));
    if (!shape->has_qk_norm) return STRAIT_OK;
    return strait_layer_plan(slab, n, shape->heads + shape->kv_heads, &out->head_rstd);
}

static strait_tensor joined_qkv(const strait_attention *layer, int is_grad) {
    const strait_tensor parts[] = {is_grad ? layer->q->grad : layer->q->compute,
                                   is_grad ? layer->k->grad : layer->k->compute,
                                   is_grad ? layer->v->grad : layer->v->compute};
    return strait_layer_join(parts, 3);
}

static strait_rotate_params turning(const strait_work *work, const strait_attention *layer) {
    return (strait_rotate_params){.heads = strait_shape_heads(work->shape, work->seq_len),
                                  .cos = work->cos,
                                  .sin = work->sin,
                                  .gain = layer->gain != NULL ? layer->gain->value
                                                              : (strait_tensor){0},
                                  .epsilon = work->shape->norm_epsilon};
}

/* Columns of qkv: where the values begin. */
static int64_t values_at(const strait_shape *s) {
    return (int64_t)(s->heads + s->kv_heads) * s->head_dim;
}

static strait_err add_values(const strait_work *work, const strait_attention *layer,
                             strait_tensor qkv) {
    strait_tensor rows;
    if (layer->values == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_layer_look_up(work, layer->values->compute, &rows));
    return work->kernels->add_cols(work->stream, qkv, rows, values_at(work->shape));
}

strait_err strait_attention_project(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor sum,
                                    strait_tensor x, strait_tensor delta) {
    const struct strait_kernels *k = work->kernels;
    const strait_tensor raw = acts->raw.data != NULL ? acts->raw : acts->qkv;
    const strait_tensor projected = layer->qkv_conv != NULL ? acts->projected : raw;
    STRAIT_TRY(k->rmsnorm(work->stream, layer->conv != NULL ? acts->plain : acts->normed, sum,
                          acts->rstd, x, delta, strait_layer_norm(work, layer->norm)));
    if (layer->conv != NULL)
        STRAIT_TRY(
            strait_layer_conv(work, acts->normed, acts->plain, layer->conv->value, acts->past));
    STRAIT_TRY(strait_layer_linear(work, projected, acts->normed, joined_qkv(layer, 0)));
    STRAIT_TRY(add_values(work, layer, projected));
    if (layer->qkv_conv != NULL)
        STRAIT_TRY(strait_layer_conv(work, raw, projected, layer->qkv_conv->value, acts->qkv_past));
    return k->rotate(work->stream, acts->qkv, acts->head_rstd, raw, turning(work, layer));
}

strait_err strait_attention_forward(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor branch,
                                    strait_tensor sum, strait_tensor x, strait_tensor delta) {
    STRAIT_TRY(strait_attention_project(work, layer, acts, sum, x, delta));
    STRAIT_TRY(work->kernels->attention(work->stream, acts->mixed, acts->lse, acts->qkv,
                                        strait_shape_heads(work->shape, work->seq_len)));
    return strait_layer_write(work, branch, acts->mixed, layer->out->compute);
}

/* From the gradient of what attention read to that of what was rotated, in d. */
static strait_err turn_back(const strait_work *work, const strait_attention *layer,
                            const strait_attention_acts *acts, strait_tensor d) {
    const strait_tensor d_gain = layer->gain != NULL ? layer->gain->grad : (strait_tensor){0};
    const strait_tensor normed = work->shape->has_qk_norm ? acts->raw : (strait_tensor){0};
    return work->kernels->rotate_back(work->stream, d, d_gain, d, normed, acts->head_rstd,
                                      turning(work, layer));
}

/* Where the gradient of the projection is, once it is made: a convolution makes it of d_qkv, and
 * what went into the rotation is not needed any more. */
static strait_tensor projected_grad(const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor d_qkv) {
    return layer->qkv_conv != NULL ? acts->raw : d_qkv;
}

strait_err strait_attention_back(const strait_work *work, const strait_attention *layer,
                                 const strait_attention_acts *acts,
                                 const strait_attention_scratch *scratch, strait_tensor d_branch,
                                 int defers) {
    const struct strait_kernels *k = work->kernels;
    const strait_heads heads = strait_shape_heads(work->shape, work->seq_len);
    const strait_tensor d_qkv = scratch->d_qkv;
    const strait_tensor d_projected = projected_grad(layer, acts, d_qkv);
    STRAIT_TRY(strait_layer_write_back(work, scratch->d_mixed, d_branch, layer->out->compute));
    STRAIT_TRY(k->attention_back(work->stream, d_qkv, scratch->d_mixed, acts->mixed, acts->qkv,
                                 acts->lse, heads));
    STRAIT_TRY(turn_back(work, layer, acts, d_qkv));
    if (layer->qkv_conv != NULL)
        STRAIT_TRY(k->conv->back(work->stream, d_projected, layer->qkv_conv->grad, d_qkv,
                                 acts->projected, layer->qkv_conv->value, work->seq_len));
    if (!defers) STRAIT_TRY(strait_attention_weights(work, layer, acts, d_branch, d_qkv));
    STRAIT_TRY(
        strait_layer_linear_back(work, scratch->d_normed, d_projected, joined_qkv(layer, 0)));
    if (layer->conv == NULL) return STRAIT_OK;
    return k->conv->back(work->stream, scratch->d_plain, layer->conv->grad, scratch->d_normed,
                         acts->plain, layer->conv->value, work->seq_len);
}

strait_err strait_attention_norm_back(const strait_work *work, const strait_attention *layer,
                                      const strait_attention_acts *acts,
                                      const strait_attention_scratch *scratch, strait_tensor x,
                                      strait_tensor d) {
    return work->kernels->rmsnorm_back(work->stream, d, layer->norm->grad,
                                       layer->conv != NULL ? scratch->d_plain : scratch->d_normed,
                                       x, layer->norm->value, acts->rstd);
}

strait_err strait_attention_weights(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor d_branch,
                                    strait_tensor d_qkv) {
    d_qkv = projected_grad(layer, acts, d_qkv);
    STRAIT_TRY(strait_layer_write_weight(work, layer->out->grad, d_branch, acts->mixed));
    if (layer->values != NULL) {
        const strait_tensor d_rows = {work->looked.data, work->looked.dtype, d_qkv.rows,
                                      layer->values->grad.cols};
        STRAIT_TRY(work->kernels->cut_cols(work->stream, d_rows, d_qkv, values_at(work->shape)));
        STRAIT_TRY(
            work->kernels->embed_back(work->stream, layer->values->grad, d_rows, work->tokens));
    }
    return strait_layer_linear_weight(work, joined_qkv(layer, 1), d_qkv, acts->normed);
}
