/* columns.c - rows added to all rows, and copies between columns: add_row, add_cols, cut_cols,
 * resize_cols, regroup_cols. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

static strait_err add_row(struct strait_stream *s, strait_tensor y, strait_tensor row) {
    assert(row.rows == 1 && row.cols == y.cols && row.dtype == STRAIT_F32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, row.data, y.rows, y.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "add_row"),
                              strait_cuda_by_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)), args);
}

/* Each share of rows writes its own partial sums, which are added in order afterwards. */
static strait_err add_row_back(struct strait_stream *s, strait_tensor d_row, strait_tensor d_y) {
    assert(d_row.rows == 1 && d_row.cols == d_y.cols && d_row.dtype == STRAIT_F32);
    int64_t shares = strait_cuda_shares(d_y.rows);
    void *part = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(shares * d_y.cols) * sizeof(float), &part));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(part, d_y.data, d_y.rows, d_y.cols);
    const strait_cuda_grid grid = {.x = shares,
                                   .y = strait_cuda_pieces(d_y.cols, 128),
                                   .threads = strait_cuda_threads(d_y.cols, 128)};
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "add_row_back"), grid, args));
    return strait_cuda_add_columns(s, d_row.data, part, shares, d_y.cols);
}

static strait_err add_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    assert(y.rows == x.rows && y.dtype == x.dtype && first >= 0 && first + x.cols <= y.cols);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, x.rows, y.cols, x.cols, first);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "add_cols"),
                              strait_cuda_by_rows(x.rows, x.cols, strait_cuda_wide(x.dtype)), args);
}

static strait_err cut_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    assert(y.rows == x.rows && y.dtype == x.dtype && first >= 0 && first + y.cols <= x.cols);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, y.rows, y.cols, x.cols, first);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "cut_cols"),
                              strait_cuda_by_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)), args);
}

/* One column per thread: the two widths rarely allow wide accesses for both. */
static strait_err resize_cols(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    assert(y.rows == x.rows && x.dtype == y.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, y.rows, y.cols, x.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "resize_cols"),
                              strait_cuda_over_rows(y.rows, y.cols, 1), args);
}

/* Source and destination may have different types, so there is a kernel for each pair. */
static strait_err regroup_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                               strait_regroup_params params) {
    assert(y.rows == x.rows && params.to + params.n_groups * params.to_cols <= y.cols);
    assert(params.from + (params.n_groups - 1) * params.from_cols < x.cols);
    const char *kernel = y.dtype == STRAIT_F32 ? STRAIT_CUDA_OF(x.dtype, "regroup_f32")
                                               : STRAIT_CUDA_OF(x.dtype, "regroup_bf16");
    const int64_t all = y.cols | x.cols | params.to | params.to_cols | params.from |
                        params.from_cols;
    const int64_t width = all % 8 == 0 ? 8 : 1; // columns per thread, as the kernel decides too
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, y.rows, y.cols, x.cols, params);
    return strait_cuda_launch(
        s, kernel, strait_cuda_by_rows(y.rows, params.n_groups * params.to_cols, width), args);
}

void strait_cuda_columns(struct strait_kernel_set *set) {
    set->base.add_row = add_row;
    set->base.add_row_back = add_row_back;
    set->base.add_cols = add_cols;
    set->base.cut_cols = cut_cols;
    set->base.resize_cols = resize_cols;
    set->base.regroup_cols = regroup_cols;
}
