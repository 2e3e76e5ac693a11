/* ref_embed.c - rows of a table by token id, the gradient of the table, and token gates. */
#include "backend/cpu/cpu.h"
#include "backend/table_row.h"

#include <string.h>

/* A few operations per token: no instruction set has a faster version. */
static strait_err table_ids(struct strait_stream *s, strait_tensor ids, strait_tensor tokens,
                            int64_t n_rows) {
    (void)s;
    assert(ids.rows == tokens.rows && n_rows > 0);
    int32_t *to = ids.data;
    const int32_t *from = strait_cpu_i32(tokens);
    for (int64_t n = 0; n < tokens.rows; n++)
        to[n] = strait_table_row(from[n], n_rows);
    return STRAIT_OK;
}

/* Ids were checked where they entered the program, so they are only asserted here. */
static strait_err embed(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens) {
    (void)s;
    assert(y.cols == table.cols && y.rows == tokens.rows);
    const int32_t *ids = strait_cpu_i32(tokens);
    for (int64_t n = 0; n < y.rows; n++) {
        assert(ids[n] >= 0 && ids[n] < table.rows);
        for (int64_t c = 0; c < y.cols; c++)
            strait_cpu_put(y, n * y.cols + c, strait_cpu_get(table, ids[n] * table.cols + c));
    }
    return STRAIT_OK;
}

/* With the backend's own kernels, so that the result has their bits; for bf16 in one pass, because
 * the difference of two rounded values may be nothing but rounding. */
static strait_err embed_minus(struct strait_stream *s, strait_tensor y, strait_tensor table,
                              strait_tensor tokens, strait_tensor x) {
    const struct strait_kernels *k = s->backend->kernels;
    for (int64_t i = 0; y.dtype == STRAIT_BF16 && i < strait_cpu_count(y); i++) {
        const int64_t row = strait_cpu_i32(tokens)[i / y.cols];
        strait_cpu_put(y, i,
                       strait_cpu_f32(table)[row * y.cols + i % y.cols] - strait_cpu_get(x, i));
    }
    if (y.dtype == STRAIT_BF16) return STRAIT_OK;
    STRAIT_TRY(k->embed(s, y, table, tokens));
    return k->axpy(s, y, -1.0f, x);
}

/* Adds rows in the order of tokens: a token id that occurs several times gets one fixed sum. */
static strait_err embed_back(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens) {
    (void)s;
    assert(d_y.cols == d_table.cols && d_y.rows == tokens.rows);
    const int32_t *ids = strait_cpu_i32(tokens);
    for (int64_t n = 0; n < d_y.rows; n++) {
        assert(ids[n] >= 0 && ids[n] < d_table.rows);
        float *to = strait_cpu_f32(d_table) + ids[n] * d_table.cols;
        const float *from = strait_cpu_f32(d_y) + n * d_y.cols;
        for (int64_t c = 0; c < d_y.cols; c++)
            to[c] += from[c];
    }
    return STRAIT_OK;
}

/* The row of the table that gates row n. */
static int64_t gate_of(strait_tensor tokens, int64_t n) {
    return tokens.data == NULL ? n : strait_cpu_i32(tokens)[n];
}

/* y = x (1 + table[token]): a table of zeros is the identity, which is how training starts. */
static strait_err gate_rows(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor table, strait_tensor tokens) {
    (void)s;
    assert(y.rows == x.rows && (tokens.data == NULL ? table : tokens).rows == x.rows);
    assert(y.cols >= table.cols && x.cols >= table.cols);
    for (int64_t n = 0; n < x.rows; n++) {
        const float *gain = strait_cpu_f32(table) + gate_of(tokens, n) * table.cols;
        for (int64_t c = 0; c < table.cols; c++)
            strait_cpu_f32(y)[n * y.cols + c] = strait_cpu_f32(x)[n * x.cols + c] * (1 + gain[c]);
    }
    return STRAIT_OK;
}

/* Every value is read before it is written, because outputs may replace inputs. */
static strait_err gate_rows_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                                 strait_tensor d_y, strait_tensor x, strait_tensor table,
                                 strait_tensor tokens) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, d_y) && strait_cpu_same_shape(d_rows, x));
    assert(strait_cpu_same_shape(d_y, x) && x.cols == table.cols);
    assert((tokens.data == NULL ? table : tokens).rows == x.rows);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t row = gate_of(tokens, i / x.cols);
        const float d = strait_cpu_f32(d_y)[i], value = strait_cpu_f32(x)[i];
        strait_cpu_f32(d_x)[i] = d * (1 + strait_cpu_f32(table)[row * table.cols + i % x.cols]);
        strait_cpu_f32(d_rows)[i] = d * value;
    }
    return STRAIT_OK;
}

/* These reference loops define the kernels; faster versions are compared with them. */
void strait_ref_embed(struct strait_kernel_set *set) {
    set->base.table_ids = table_ids;
    set->base.embed = embed;
    set->subspace.embed_minus = embed_minus;
    set->base.embed_back = embed_back;
    set->token_gates.apply = gate_rows;
    set->token_gates.apply_back = gate_rows_back;
}
