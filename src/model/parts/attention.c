#include "model/parts/attention.h"

#include "model/parts/entry.h"

strait_err strait_attention_add_params(struct strait_param_list *list, strait_attention *out) {
    const strait_shape *s = list->shape;
    const int64_t d = s->width;
    const int64_t queries = strait_shape_attention_cols(s);
    const int64_t keys = (int64_t)s->kv_heads * s->head_dim;
    STRAIT_TRY(strait_param_list_add(list, "attention.norm", STRAIT_ROLE_GAIN, 1, d, &out->norm));
    STRAIT_TRY(strait_param_list_add(list, "attention.q", STRAIT_ROLE_MATRIX, queries, d, &out->q));
    STRAIT_TRY(
        strait_param_list_add_adjacent(list, "attention.k", STRAIT_ROLE_MATRIX, keys, d, &out->k));
    STRAIT_TRY(
        strait_param_list_add_adjacent(list, "attention.v", STRAIT_ROLE_MATRIX, keys, d, &out->v));
    if (s->has_qkv_bias)
        STRAIT_TRY(strait_param_list_add(list, "attention.qkv_bias", STRAIT_ROLE_BIAS, 1,
                                         strait_shape_qkv_cols(s), &out->bias));
    if (s->has_qk_gain)
        STRAIT_TRY(strait_param_list_add(list, "attention.qk_gain", STRAIT_ROLE_GAIN, 2,
                                         s->head_dim, &out->gain));
    if (s->conv > 0)
        STRAIT_TRY(strait_param_list_add(list, "attention.conv", STRAIT_ROLE_CONV, s->conv, d,
                                         &out->conv));
    if (s->has_qkv_conv)
        STRAIT_TRY(strait_param_list_add(list, "attention.qkv_conv", STRAIT_ROLE_CONV, s->conv,
                                         strait_shape_qkv_cols(s), &out->qkv_conv));
    if (s->has_value_tables && strait_shape_has_local(s, list->block))
        STRAIT_TRY(strait_param_list_add(list, "attention.values", STRAIT_ROLE_VALUES,
                                         strait_shape_table_rows(s), keys, &out->values));
    return strait_param_list_add(list, "attention.out", STRAIT_ROLE_RESIDUAL_OUT,
                                 list->residual_out_rows, queries, &out->out);
}

strait_err strait_attention_plan_acts(const strait_shape *shape, int64_t n,
                                      struct strait_slab *slab, strait_attention_acts *out) {
    const int64_t qkv = strait_shape_qkv_cols(shape);
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->normed));
    if (shape->conv > 0 && !shape->fuses_conv)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, shape->width, &out->before_conv));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, 1, &out->rstd));
    STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->qkv));
    STRAIT_TRY(strait_layer_plan_f32(slab, n, shape->heads, &out->lse));
    STRAIT_TRY(
        strait_layer_plan_acts(shape, slab, n, strait_shape_attention_cols(shape), &out->attended));
    if (shape->has_qkv_conv)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->projected));
    if (shape->has_qkv_conv || shape->has_qk_norm)
        STRAIT_TRY(strait_layer_plan_acts(shape, slab, n, qkv, &out->unrotated));
    if (!shape->has_qk_norm) return STRAIT_OK; // only the norm per head needs head_rstd
    return strait_layer_plan_f32(slab, n, shape->heads + shape->kv_heads, &out->head_rstd);
}

/* The three projections as one matrix, so that one product computes q, k and v. */
static strait_tensor joined_qkv(const strait_attention *layer, int is_grad) {
    const strait_tensor matrices[] = {is_grad ? layer->q->grad : layer->q->compute,
                                      is_grad ? layer->k->grad : layer->k->compute,
                                      is_grad ? layer->v->grad : layer->v->compute};
    return strait_layer_join(matrices, 3);
}

/* Forward and backward must rotate alike: both take their arguments from here. */
static strait_rotate_params rotation(const strait_work *work, const strait_attention *layer) {
    return (strait_rotate_params){.heads = strait_shape_heads(work->shape, work->seq_len),
                                  .cos = work->cos,
                                  .sin = work->sin,
                                  .gain = layer->gain != NULL ? layer->gain->value
                                                              : (strait_tensor){0},
                                  .epsilon = work->shape->norm_epsilon};
}

/* The column of qkv where the values begin. */
static int64_t first_value_col(const strait_shape *s) {
    return (int64_t)(s->heads + s->kv_heads) * s->head_dim;
}

/* Adds the rows of the value table to the value columns of qkv. */
static strait_err add_values(const strait_work *work, const strait_attention *layer,
                             strait_tensor qkv) {
    if (layer->values == NULL) return STRAIT_OK;
    return strait_layer_table_add(work, qkv, qkv, (strait_tensor){0}, layer->values->compute,
                                  first_value_col(work->shape));
}

static strait_conv_rotate_params conv_and_rotation(const strait_work *work,
                                                   const strait_attention *layer) {
    return (strait_conv_rotate_params){.taps = layer->qkv_conv->value,
                                       .rotation = rotation(work, layer),
                                       .d_taps = layer->qkv_conv->grad,
                                       .d_gain = layer->gain != NULL ? layer->gain->grad
                                                                     : (strait_tensor){0}};
}

/* The convolution of qkv, where there is one, and the rotation. */
static strait_err convolve_and_rotate(const strait_work *work, const strait_attention *layer,
                                      const strait_attention_acts *acts, strait_tensor projected,
                                      strait_tensor unrotated) {
    const struct strait_kernels *k = work->kernels;
    if (layer->qkv_conv != NULL && acts->qkv_past.data == NULL && work->shape->fuses_conv) {
        const strait_conv_rotate_params both = conv_and_rotation(work, layer);
        return k->conv_rotate->forward(work->stream, acts->qkv, acts->head_rstd, unrotated,
                                       projected, &both);
    }
    if (layer->qkv_conv != NULL)
        STRAIT_TRY(
            strait_layer_conv(work, unrotated, projected, layer->qkv_conv->value, acts->qkv_past));
    return k->rotate(work->stream, acts->qkv, acts->head_rstd, unrotated, rotation(work, layer));
}

strait_err strait_attention_project(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor sum,
                                    strait_tensor x, strait_tensor delta) {
    const struct strait_kernels *k = work->kernels;
    /* Without a convolution or norm per head nothing reads the projection again: the rotation then
     * works in place, and the three tensors are one. */
    const strait_tensor unrotated = acts->unrotated.data != NULL ? acts->unrotated : acts->qkv;
    const strait_tensor projected = layer->qkv_conv != NULL ? acts->projected : unrotated;
    /* The norm adds x + delta on the way and writes the sum, so the residual addition costs no pass
     * over memory of its own. */
    STRAIT_TRY(strait_entry_forward(work, STRAIT_ENTRY(layer, acts), sum, x, delta));
    STRAIT_TRY(strait_layer_linear(work, projected, acts->normed, joined_qkv(layer, 0)));
    if (layer->bias != NULL) STRAIT_TRY(k->add_row(work->stream, projected, layer->bias->value));
    STRAIT_TRY(add_values(work, layer, projected));
    return convolve_and_rotate(work, layer, acts, projected, unrotated);
}

/* Attention of document i of those that share rows: the kernel sees it alone, as one sequence. */
static strait_heads document_heads(const strait_work *work, int64_t i, int64_t *first) {
    *first = work->documents.starts[i];
    strait_heads heads = strait_shape_heads(work->shape, work->documents.starts[i + 1] - *first);
    heads.is_ragged = 1;
    return heads;
}

static strait_err attend(const strait_work *work, const strait_attention_acts *acts) {
    const struct strait_kernels *k = work->kernels;
    if (work->documents.n == 0)
        return k->attention(work->stream, acts->attended, acts->lse, acts->qkv,
                            strait_shape_heads(work->shape, work->seq_len));
    for (int64_t i = 0; i < work->documents.n; i++) {
        int64_t first = 0;
        const strait_heads heads = document_heads(work, i, &first);
        const int64_t n = heads.seq_len;
        STRAIT_TRY(k->attention(work->stream, strait_tensor_rows(acts->attended, first, n),
                                strait_tensor_rows(acts->lse, first, n),
                                strait_tensor_rows(acts->qkv, first, n), heads));
    }
    return STRAIT_OK;
}

static strait_err attend_backward(const strait_work *work, const strait_attention_acts *acts,
                                  strait_tensor d_qkv, strait_tensor d_attended) {
    const struct strait_kernels *k = work->kernels;
    if (work->documents.n == 0)
        return k->attention_back(work->stream, d_qkv, d_attended, acts->attended, acts->qkv,
                                 acts->lse, strait_shape_heads(work->shape, work->seq_len));
    for (int64_t i = 0; i < work->documents.n; i++) {
        int64_t first = 0;
        const strait_heads heads = document_heads(work, i, &first);
        const int64_t n = heads.seq_len;
        STRAIT_TRY(k->attention_back(work->stream, strait_tensor_rows(d_qkv, first, n),
                                     strait_tensor_rows(d_attended, first, n),
                                     strait_tensor_rows(acts->attended, first, n),
                                     strait_tensor_rows(acts->qkv, first, n),
                                     strait_tensor_rows(acts->lse, first, n), heads));
    }
    return STRAIT_OK;
}

strait_err strait_attention_forward(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor branch,
                                    strait_tensor sum, strait_tensor x, strait_tensor delta) {
    STRAIT_TRY(strait_attention_project(work, layer, acts, sum, x, delta));
    STRAIT_TRY(attend(work, acts));
    return strait_layer_residual_out(work, branch, acts->attended, layer->out->compute);
}

/* In place: from the gradient of the rotated qkv to that of the rotation's input. */
static strait_err rotation_backward(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor d) {
    const strait_tensor d_gain = layer->gain != NULL ? layer->gain->grad : (strait_tensor){0};
    const strait_tensor normed = work->shape->has_qk_norm ? acts->unrotated : (strait_tensor){0};
    return work->kernels->rotate_back(work->stream, d, d_gain, d, normed, acts->head_rstd,
                                      rotation(work, layer));
}

/* Where backward puts the gradient of the projection. The convolution of qkv cannot work in place;
 * its gradient goes to acts->unrotated, which is not read any more by then. */
static strait_tensor projected_grad(const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor d_qkv) {
    return layer->qkv_conv != NULL ? acts->unrotated : d_qkv;
}

/* From the gradient of attention's output to that of the rotation's input. */
static strait_err attend_and_rotate_backward(const strait_work *work, const strait_attention *layer,
                                             const strait_attention_acts *acts, strait_tensor d_qkv,
                                             strait_tensor d_attended) {
    /* A norm per head has a gradient of its own, and rows of several documents attend one by one:
     * then the rotation takes a pass of its own. */
    if (!work->shape->has_qk_norm && work->documents.n == 0)
        return work->kernels->attention_rotate_back(work->stream, d_qkv, d_attended, acts->attended,
                                                    acts->qkv, acts->lse, rotation(work, layer));
    STRAIT_TRY(attend_backward(work, acts, d_qkv, d_attended));
    return rotation_backward(work, layer, acts, d_qkv);
}

/* From the gradient of attention's output to that of the projection, by way of d_qkv. */
static strait_err qkv_backward(const strait_work *work, const strait_attention *layer,
                               const strait_attention_acts *acts, strait_tensor d_projected,
                               strait_tensor d_qkv, strait_tensor d_attended) {
    const struct strait_kernels *k = work->kernels;
    if (layer->qkv_conv != NULL && work->shape->fuses_conv) {
        const strait_conv_rotate_params both = conv_and_rotation(work, layer);
        STRAIT_TRY(attend_backward(work, acts, d_qkv, d_attended));
        return k->conv_rotate->back(work->stream, d_projected, d_qkv, acts->projected,
                                    acts->head_rstd, &both);
    }
    STRAIT_TRY(attend_and_rotate_backward(work, layer, acts, d_qkv, d_attended));
    if (layer->qkv_conv == NULL) return STRAIT_OK;
    return k->conv->back(work->stream, d_projected, layer->qkv_conv->grad, d_qkv, acts->projected,
                         layer->qkv_conv->value, work->seq_len);
}

strait_err strait_attention_backward(const strait_work *work, const strait_attention *layer,
                                     const strait_attention_acts *acts,
                                     const strait_attention_scratch *scratch,
                                     strait_tensor d_branch, int defers) {
    const struct strait_kernels *k = work->kernels;
    const strait_tensor d_qkv = scratch->d_qkv;
    const strait_tensor d_projected = projected_grad(layer, acts, d_qkv);
    /* In the reverse order of forward. Scratch tensors may share memory: each is read for the last
     * time before another of its group is written (strait_block_plan_scratch). */
    STRAIT_TRY(strait_layer_residual_out_backward(work, scratch->d_attended, d_branch,
                                                  layer->out->compute));
    STRAIT_TRY(qkv_backward(work, layer, acts, d_projected, d_qkv, scratch->d_attended));
    if (layer->bias != NULL)
        STRAIT_TRY(k->add_row_back(work->stream, layer->bias->grad, d_projected));
    if (!defers) STRAIT_TRY(strait_attention_weight_grads(work, layer, acts, d_branch, d_qkv));
    STRAIT_TRY(
        strait_layer_linear_backward(work, scratch->d_normed, d_projected, joined_qkv(layer, 0)));
    return strait_entry_conv_backward(work, STRAIT_ENTRY(layer, acts), scratch->d_before_conv,
                                      scratch->d_normed);
}

strait_err strait_attention_norm_backward(const strait_work *work, const strait_attention *layer,
                                          const strait_attention_acts *acts,
                                          const strait_attention_scratch *scratch, strait_tensor x,
                                          strait_tensor d) {
    return strait_entry_backward(work, STRAIT_ENTRY(layer, acts), scratch->d_before_conv,
                                 scratch->d_normed, x, d);
}

strait_err strait_attention_weight_grads(const strait_work *work, const strait_attention *layer,
                                         const strait_attention_acts *acts, strait_tensor d_branch,
                                         strait_tensor d_qkv) {
    d_qkv = projected_grad(layer, acts, d_qkv);
    if (!layer->out->is_idle)
        STRAIT_TRY(strait_layer_residual_out_weight_grad(work, layer->out->grad, d_branch,
                                                         acts->attended));
    /* The value table got its rows added to the value columns: its gradient is those columns. */
    if (layer->values != NULL)
        STRAIT_TRY(strait_layer_table_backward(work, layer->values->grad, d_qkv,
                                               first_value_col(work->shape)));
    if (layer->q->is_idle) return STRAIT_OK;
    return strait_layer_linear_weight_grad(work, joined_qkv(layer, 1), d_qkv, acts->normed);
}
