/* ref_columns.c - rows added to all rows, and copies between columns: add_row, add_cols, cut_cols,
 * resize_cols, regroup_cols. */
#include "backend/cpu/cpu.h"

/* y[n, :] += row */
static strait_err add_row(struct strait_stream *s, strait_tensor y, strait_tensor row) {
    (void)s;
    assert(row.rows == 1 && row.cols == y.cols);
    for (int64_t n = 0; n < y.rows; n++)
        for (int64_t c = 0; c < y.cols; c++)
            strait_cpu_add(y, n * y.cols + c, strait_cpu_f32(row)[c]);
    return STRAIT_OK;
}

/* d_row += the sum over the rows of d_y. A few columns at a time: their sums stay in registers, and
 * each row of memory is read in order. */
static strait_err add_row_back(struct strait_stream *s, strait_tensor d_row, strait_tensor d_y) {
    enum {
        BATCH = 16
    };
    (void)s;
    assert(d_row.rows == 1 && d_row.cols == d_y.cols);
    for (int64_t first = 0; first < d_y.cols; first += BATCH) {
        const int64_t n = d_y.cols - first < BATCH ? d_y.cols - first : BATCH;
        double sums[BATCH] = {0};
        for (int64_t row = 0; row < d_y.rows; row++)
            for (int64_t c = 0; c < n; c++)
                sums[c] += (double)strait_cpu_get(d_y, row * d_y.cols + first + c);
        for (int64_t c = 0; c < n; c++)
            strait_cpu_f32(d_row)[first + c] += (float)sums[c];
    }
    return STRAIT_OK;
}

/* y[:, first + c] += x[:, c] */
static strait_err add_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    (void)s;
    assert(y.rows == x.rows && first >= 0 && first + x.cols <= y.cols);
    for (int64_t i = 0; i < strait_cpu_count(x); i++)
        strait_cpu_add(y, i / x.cols * y.cols + first + i % x.cols, strait_cpu_get(x, i));
    return STRAIT_OK;
}

/* y[:, c] = x[:, first + c] */
static strait_err cut_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    (void)s;
    assert(y.rows == x.rows && first >= 0 && first + y.cols <= x.cols);
    for (int64_t n = 0; n < y.rows; n++)
        for (int64_t c = 0; c < y.cols; c++)
            strait_cpu_put(y, n * y.cols + c, strait_cpu_get(x, n * x.cols + first + c));
    return STRAIT_OK;
}

/* Widening fills with zeros, narrowing drops columns. */
static strait_err resize_cols(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(y.rows == x.rows);
    const int64_t shared = y.cols < x.cols ? y.cols : x.cols;
    for (int64_t n = 0; n < y.rows; n++) {
        float *to = strait_cpu_f32(y) + n * y.cols;
        memcpy(to, strait_cpu_f32(x) + n * x.cols, (size_t)shared * sizeof(float));
        memset(to + shared, 0, (size_t)(y.cols - shared) * sizeof(float));
    }
    return STRAIT_OK;
}

/* Column c of group g of y comes from column c of group g of x; padding columns become 0. */
static strait_err regroup_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                               strait_regroup_params params) {
    (void)s;
    assert(y.rows == x.rows && params.to + params.n_groups * params.to_cols <= y.cols);
    assert(params.from + (params.n_groups - 1) * params.from_cols < x.cols);
    for (int64_t i = 0; i < y.rows * params.n_groups * params.to_cols; i++) {
        const int64_t c = i % params.to_cols, g = i / params.to_cols % params.n_groups;
        const int64_t n = i / params.to_cols / params.n_groups;
        const int64_t from = n * x.cols + params.from + g * params.from_cols + c;
        const int64_t to = n * y.cols + params.to + g * params.to_cols + c;
        const float value = c < params.from_cols ? params.alpha * strait_cpu_get(x, from) : 0.0f;
        strait_cpu_put(y, to, params.adds ? strait_cpu_get(y, to) + value : value);
    }
    return STRAIT_OK;
}

void strait_ref_columns(struct strait_kernel_set *set) {
    set->base.add_row = add_row;
    set->base.add_row_back = add_row_back;
    set->base.add_cols = add_cols;
    set->base.cut_cols = cut_cols;
    set->base.resize_cols = resize_cols;
    set->base.regroup_cols = regroup_cols;
}
