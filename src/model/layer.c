#include "model/layer.h"

#include <assert.h>

strait_err strait_layer_linear(const strait_work *work, strait_tensor y, strait_tensor x,
                               strait_tensor weight) {
    return work->kernels->matmul(work->stream, y, x, weight,
                                 (strait_matmul_params){.transpose_b = 1, .alpha = 1.0f});
}

strait_err strait_layer_linear_back(const strait_work *work, strait_tensor d_x, strait_tensor d_y,
                                    strait_tensor weight) {
    return work->kernels->matmul(work->stream, d_x, d_y, weight,
                                 (strait_matmul_params){.alpha = 1.0f});
}

strait_err strait_layer_linear_weight(const strait_work *work, strait_tensor d_weight,
                                      strait_tensor d_y, strait_tensor x) {
    return work->kernels->matmul(work->stream, d_weight, d_y, x,
                                 (strait_matmul_params){.transpose_a = 1,
                                                        .alpha = 1.0f,
                                                        .beta = work->is_fresh ? 0.0f : 1.0f});
}

/* Coordinates in the basis, and back. */
static strait_tensor code_rows(const strait_work *work, int64_t rows) {
    return strait_tensor_rows(work->code, 0, rows);
}

static strait_err narrow(const strait_work *work, strait_tensor code, strait_tensor x) {
    return work->kernels->matmul(work->stream, code, x, work->basis,
                                 (strait_matmul_params){.alpha = 1.0f});
}

static strait_err widen(const strait_work *work, strait_tensor y, strait_tensor code, float beta) {
    return work->kernels->matmul(
        work->stream, y, code, work->basis,
        (strait_matmul_params){.transpose_b = 1, .alpha = 1.0f, .beta = beta});
}

strait_err strait_layer_write(const strait_work *work, strait_tensor y, strait_tensor x,
                              strait_tensor weight) {
    if (work->basis.data == NULL) return strait_layer_linear(work, y, x, weight);
    const strait_tensor code = code_rows(work, x.rows);
    STRAIT_TRY(strait_layer_linear(work, code, x, weight));
    return widen(work, y, code, 0.0f);
}

strait_err strait_layer_write_back(const strait_work *work, strait_tensor d_x, strait_tensor d_y,
                                   strait_tensor weight) {
    if (work->basis.data == NULL) return strait_layer_linear_back(work, d_x, d_y, weight);
    const strait_tensor code = code_rows(work, d_y.rows);
    STRAIT_TRY(narrow(work, code, d_y));
    return strait_layer_linear_back(work, d_x, code, weight);
}

strait_err strait_layer_write_weight(const strait_work *work, strait_tensor d_weight,
                                     strait_tensor d_y, strait_tensor x) {
    if (work->basis.data == NULL) return strait_layer_linear_weight(work, d_weight, d_y, x);
    const strait_tensor code = code_rows(work, d_y.rows);
    STRAIT_TRY(narrow(work, code, d_y));
    return strait_layer_linear_weight(work, d_weight, code, x);
}

strait_norm_params strait_layer_norm(const strait_work *work, const strait_param *gain) {
    return (strait_norm_params){.gain = gain->value, .epsilon = work->shape->norm_epsilon};
}

strait_err strait_layer_embed(const strait_work *work, strait_tensor y, strait_tensor table,
                              strait_tensor tokens) {
    const struct strait_kernels *k = work->kernels;
    if (work->basis.data == NULL) return k->embed(work->stream, y, table, tokens);
    const strait_tensor code = code_rows(work, y.rows);
    STRAIT_TRY(k->embed(work->stream, y, work->fixed, tokens));
    STRAIT_TRY(k->embed(work->stream, code, table, tokens));
    return widen(work, y, code, 1.0f);
}

strait_err strait_layer_embed_back(const strait_work *work, strait_tensor d_table,
                                   strait_tensor d_y, strait_tensor tokens) {
    const struct strait_kernels *k = work->kernels;
    if (work->basis.data == NULL) return k->embed_back(work->stream, d_table, d_y, tokens);
    const strait_tensor code = code_rows(work, d_y.rows);
    STRAIT_TRY(narrow(work, code, d_y));
    return k->embed_back(work->stream, d_table, code, tokens);
}

strait_err strait_layer_look_up(const strait_work *work, strait_tensor table, strait_tensor *out) {
    *out = (strait_tensor){work->looked.data, work->looked.dtype, work->tokens.rows, table.cols};
    return work->kernels->embed(work->stream, *out, table, work->tokens);
}

/* The new row enters behind those kept, of which the oldest goes. */
static strait_err remember(const strait_work *work, strait_tensor past, int64_t taps,
                           strait_tensor x) {
    for (int64_t i = 0; i + 1 < taps; i++)
        STRAIT_TRY(work->kernels->cast(work->stream, strait_tensor_rows(past, i, 1),
                                       strait_tensor_rows(past, i + 1, 1)));
    return work->kernels->cast(work->stream, strait_tensor_rows(past, taps - 1, 1), x);
}

strait_err strait_layer_conv(const strait_work *work, strait_tensor y, strait_tensor x,
                             strait_tensor taps, strait_tensor past) {
    const struct strait_kernels *k = work->kernels;
    const int64_t n = taps.rows;
    if (past.data == NULL) return k->conv->forward(work->stream, y, x, taps, work->seq_len);
    STRAIT_TRY(remember(work, past, n, x));
    STRAIT_TRY(k->conv->forward(work->stream, strait_tensor_rows(past, n, n),
                                strait_tensor_rows(past, 0, n), taps, n));
    return k->cast(work->stream, y, strait_tensor_rows(past, 2 * n - 1, 1));
}

strait_tensor strait_layer_join(const strait_tensor *parts, int n) {
    strait_tensor joined = parts[0];
    for (int i = 1; i < n; i++) {
        assert(parts[i].cols == joined.cols);
        assert(joined.data == NULL ||
               (char *)parts[i].data == (char *)joined.data + strait_tensor_bytes(joined));
        joined.rows += parts[i].rows;
    }
    return joined;
}

strait_err strait_layer_plan(struct strait_slab *slab, int64_t rows, int64_t cols,
                             strait_tensor *where) {
    return strait_slab_add(slab, STRAIT_F32, rows, cols, where);
}

strait_err strait_layer_plan_acts(const strait_shape *shape, struct strait_slab *slab, int64_t rows,
                                  int64_t cols, strait_tensor *where) {
    return strait_slab_add(slab, shape->precision, rows, cols, where);
}
