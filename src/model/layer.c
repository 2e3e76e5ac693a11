#include "model/layer.h"

#include <assert.h>

/* In 8 bits where the pass has scratch for it and the sizes allow it. */
static strait_err multiply(const strait_work *work, strait_tensor y, strait_tensor a,
                           strait_tensor b, strait_matmul_params params, int is_gradient) {
    const int64_t inner = params.transpose_a ? a.rows : a.cols;
    if (work->fp8_space.data == NULL || params.is_rowwise ||
        (y.rows | y.cols | inner) % STRAIT_FP8_MULTIPLE != 0)
        return work->kernels->matmul(work->stream, y, a, b, params);
    return work->kernels->fp8->matmul(
        work->stream, y, a, b, params,
        (strait_fp8_params){.is_gradient = is_gradient, .space = work->fp8_space});
}

strait_err strait_layer_linear(const strait_work *work, strait_tensor y, strait_tensor x,
                               strait_tensor weight) {
    const strait_matmul_params params = {
        .transpose_b = 1, .alpha = 1.0f, .is_rowwise = work->is_rowwise};
    return multiply(work, y, x, weight, params, 0);
}

strait_err strait_layer_linear_backward(const strait_work *work, strait_tensor d_x,
                                        strait_tensor d_y, strait_tensor weight) {
    return multiply(work, d_x, d_y, weight, (strait_matmul_params){.alpha = 1.0f}, 1);
}

strait_err strait_layer_linear_weight_grad(const strait_work *work, strait_tensor d_weight,
                                           strait_tensor d_y, strait_tensor x) {
    const strait_matmul_params params = {
        .transpose_a = 1, .alpha = 1.0f, .beta = work->overwrites_grads ? 0.0f : 1.0f};
    return multiply(work, d_weight, d_y, x, params, 1);
}

strait_tensor strait_layer_code_rows(const strait_work *work, int64_t rows) {
    return strait_tensor_rows(work->code, 0, rows);
}

strait_err strait_layer_to_basis(const strait_work *work, strait_tensor code, strait_tensor x) {
    return work->kernels->matmul(
        work->stream, code, x, work->basis,
        (strait_matmul_params){.alpha = 1.0f, .is_rowwise = work->is_rowwise});
}

strait_err strait_layer_from_basis(const strait_work *work, strait_tensor y, strait_tensor code,
                                   float beta) {
    return work->kernels->matmul(
        work->stream, y, code, work->basis,
        (strait_matmul_params){
            .transpose_b = 1, .alpha = 1.0f, .beta = beta, .is_rowwise = work->is_rowwise});
}

strait_err strait_layer_residual_out(const strait_work *work, strait_tensor y, strait_tensor x,
                                     strait_tensor weight) {
    /* Through k coordinates, never as a full matrix: fewer operations, and y stays in the span. */
    if (work->basis.data == NULL) return strait_layer_linear(work, y, x, weight);
    const strait_tensor code = strait_layer_code_rows(work, x.rows);
    STRAIT_TRY(strait_layer_linear(work, code, x, weight));
    return strait_layer_from_basis(work, y, code, 0.0f);
}

strait_err strait_layer_residual_out_backward(const strait_work *work, strait_tensor d_x,
                                              strait_tensor d_y, strait_tensor weight) {
    if (work->basis.data == NULL) return strait_layer_linear_backward(work, d_x, d_y, weight);
    const strait_tensor code = strait_layer_code_rows(work, d_y.rows);
    STRAIT_TRY(strait_layer_to_basis(work, code, d_y));
    return strait_layer_linear_backward(work, d_x, code, weight);
}

strait_err strait_layer_residual_out_weight_grad(const strait_work *work, strait_tensor d_weight,
                                                 strait_tensor d_y, strait_tensor x) {
    if (work->basis.data == NULL) return strait_layer_linear_weight_grad(work, d_weight, d_y, x);
    /* Projected again: backward used the same scratch, and others have since. */
    const strait_tensor code = strait_layer_code_rows(work, d_y.rows);
    STRAIT_TRY(strait_layer_to_basis(work, code, d_y));
    return strait_layer_linear_weight_grad(work, d_weight, code, x);
}

strait_norm_params strait_layer_norm(const strait_work *work, const strait_param *gain) {
    return (strait_norm_params){.gain = gain->value, .epsilon = work->shape->norm_epsilon};
}

/* Scratch for rows of a table with this many columns. */
static strait_tensor table_rows(const strait_work *work, int64_t cols) {
    return (strait_tensor){work->table_rows.data, work->table_rows.dtype, work->table_ids.rows,
                           cols};
}

strait_err strait_layer_table_add(const strait_work *work, strait_tensor y, strait_tensor x,
                                  strait_tensor delta, strait_tensor table, int64_t first) {
    const struct strait_kernels *k = work->kernels;
    if (work->shape->lists_tokens)
        return k->token_tables->add(work->stream, y, x, delta, table, work->table_ids, first);
    const strait_tensor rows = table_rows(work, table.cols);
    if (delta.data != NULL) STRAIT_TRY(k->add(work->stream, y, x, delta));
    STRAIT_TRY(k->embed(work->stream, rows, table, work->table_ids));
    if (table.cols == y.cols) return k->add(work->stream, y, delta.data != NULL ? y : x, rows);
    assert(delta.data != NULL || y.data == x.data);
    return k->add_cols(work->stream, y, rows, first);
}

strait_err strait_layer_table_backward(const strait_work *work, strait_tensor d_table,
                                       strait_tensor d, int64_t first) {
    const struct strait_kernels *k = work->kernels;
    if (work->lists.data != NULL)
        return k->token_tables->back(work->stream, d_table, d, first, work->table_ids, work->lists);
    const strait_tensor rows = table_rows(work, d_table.cols);
    if (d.cols == d_table.cols) return k->embed_back(work->stream, d_table, d, work->table_ids);
    STRAIT_TRY(k->cut_cols(work->stream, rows, d, first));
    return k->embed_back(work->stream, d_table, rows, work->table_ids);
}

strait_err strait_layer_conv(const strait_work *work, strait_tensor y, strait_tensor x,
                             strait_tensor taps, strait_tensor past) {
    const struct strait_conv_kernels *conv = work->kernels->conv;
    if (past.data == NULL) return conv->forward(work->stream, y, x, taps, work->seq_len);
    return conv->cached(work->stream, y, past, x, taps, work->at);
}

strait_tensor strait_layer_join(const strait_tensor *matrices, int n) {
    strait_tensor joined = matrices[0];
    for (int i = 1; i < n; i++) {
        /* Planned tensors without memory have no address to compare. */
        assert(matrices[i].cols == joined.cols);
        assert(joined.data == NULL ||
               (char *)matrices[i].data == (char *)joined.data + strait_tensor_bytes(joined));
        joined.rows += matrices[i].rows;
    }
    return joined;
}

strait_err strait_layer_plan_f32(struct strait_slab *slab, int64_t rows, int64_t cols,
                                 strait_tensor *where) {
    return strait_slab_add(slab, STRAIT_F32, rows, cols, where);
}

strait_err strait_layer_plan_acts(const strait_shape *shape, struct strait_slab *slab, int64_t rows,
                                  int64_t cols, strait_tensor *where) {
    return strait_slab_add(slab, shape->precision, rows, cols, where);
}
