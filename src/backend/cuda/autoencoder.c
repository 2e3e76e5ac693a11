/* autoencoder.c - kernels of trained codecs: windows of codes, difference and norm, silu into
 * columns, and gradients through a norm and a silu at once. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_autoencoder.h"

enum {
    ROWS = 8, // per block, one warp each
    THREADS = 32 * ROWS
};

static strait_cuda_grid warp_per_row(int64_t rows) {
    return (strait_cuda_grid){.x = strait_cuda_pieces(rows, ROWS), .threads = THREADS};
}

/* A row is held in registers between its two passes, so the number of threads follows from its
 * width. */
static strait_err subtract_norm(struct strait_stream *s, strait_tensor delta, strait_tensor normed,
                                strait_tensor rstd, strait_tensor y, strait_tensor x,
                                float epsilon) {
    assert(delta.rows == y.rows && delta.cols >= y.cols && strait_cuda_same_shape(x, y));
    assert(normed.data == NULL || (strait_cuda_same_shape(normed, y) && normed.dtype == y.dtype));
    assert(normed.data == NULL || rstd.rows == y.rows);
    assert(delta.dtype == y.dtype && x.dtype == y.dtype);
    const int64_t held = (y.cols | delta.cols) % strait_cuda_wide(y.dtype) == 0 ? 16 : 4;
    const unsigned threads = strait_cuda_threads(strait_cuda_pieces(y.cols, held), 512);
    strait_cuda_subtract_norm_args args = {.delta = delta.data,
                                           .normed = normed.data,
                                           .rstd = rstd.data,
                                           .y = y.data,
                                           .x = x.data,
                                           .cols = (int32_t)y.cols,
                                           .delta_cols = (int32_t)delta.cols,
                                           .epsilon = epsilon};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "subtract_norm"),
                              (strait_cuda_grid){.x = y.rows, .threads = threads},
                              STRAIT_CUDA_ARGS(args));
}

/* How many lanes of a warp compute one code of z, 8 columns each; 0 where widths or addresses do
 * not allow 16-byte accesses, and a whole warp takes a row instead. */
static int code_lanes(strait_tensor z, strait_tensor both, const void *narrow, const void *rest) {
    const uintptr_t all = (uintptr_t)z.data | (uintptr_t)both.data | (uintptr_t)narrow |
                          (uintptr_t)rest;
    const int64_t n = z.cols / 8;
    const int is_even = all % 16 == 0 && z.cols % 8 == 0 && both.cols % 8 == 0;
    return is_even && n >= 1 && n <= 32 && (n & (n - 1)) == 0 ? (int)n : 0;
}

/* The grid for `codes` codes of n_lanes lanes each; one warp per row where n_lanes is 0. */
static strait_cuda_grid by_codes(int64_t rows, int64_t codes, int n_lanes) {
    if (n_lanes == 0) return warp_per_row(rows);
    return (strait_cuda_grid){.x = strait_cuda_pieces(codes * n_lanes, THREADS),
                              .threads = THREADS};
}

/* Codes are computed by groups of lanes where their width allows it, else by whole warps. */
static strait_err window_norm(struct strait_stream *s, strait_tensor both, strait_tensor normeds,
                              strait_tensor rstd, strait_tensor z, strait_window_params params) {
    assert(params.keep <= z.cols && normeds.cols == params.taps * z.cols &&
           both.cols >= normeds.cols);
    assert(both.dtype == normeds.dtype && z.dtype == STRAIT_F32 && z.rows % params.seq_len == 0);
    int n_lanes = code_lanes(z, both, normeds.data, NULL);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(both.data, normeds.data, rstd.data, z.data,
                                                   z.rows, z.cols, both.cols, params, n_lanes);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(both.dtype, "window_norm"),
                              by_codes(z.rows, z.rows * params.taps, n_lanes), args);
}

static strait_err window_norm_back(struct strait_stream *s, strait_tensor d_z, strait_tensor d_both,
                                   strait_tensor d_normeds, strait_tensor z, strait_tensor rstd,
                                   strait_window_params params) {
    assert(strait_cuda_same_shape(d_z, z) && params.keep <= z.cols && d_z.dtype == STRAIT_F32);
    assert(d_normeds.cols == params.taps * z.cols && d_both.cols >= d_normeds.cols);
    assert(d_both.dtype == d_normeds.dtype && z.rows % params.seq_len == 0);
    int n_lanes = code_lanes(z, d_both, d_normeds.data, d_z.data);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_z.data, d_both.data, d_normeds.data, z.data,
                                                   rstd.data, z.rows, z.cols, d_both.cols, params,
                                                   n_lanes);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(d_both.dtype, "window_norm_back"),
                              by_codes(z.rows, z.rows, n_lanes), args);
}

/* The second part may be f32 in a bf16 model: codes are kept in f32. */
static strait_err silu_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            int64_t first, strait_tensor beside) {
    const int64_t cols = x.cols + beside.cols;
    assert(y.rows == x.rows && first >= 0 && first + cols <= y.cols && y.dtype == x.dtype);
    assert(beside.data == NULL || beside.rows == y.rows);
    assert(beside.data == NULL || beside.dtype == y.dtype || beside.dtype == STRAIT_F32);
    strait_cuda_silu_cols_args args = {.y = y.data,
                                       .x = x.data,
                                       .beside = beside.data,
                                       .rows = y.rows,
                                       .y_cols = y.cols,
                                       .cols = x.cols,
                                       .first = first,
                                       .beside_cols = beside.cols,
                                       .is_beside_f32 = beside.dtype == STRAIT_F32};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "silu_cols"),
                              strait_cuda_by_rows(x.rows, cols, strait_cuda_wide(x.dtype)),
                              STRAIT_CUDA_ARGS(args));
}

/* Only the columns that silu wrote have a gradient through it. */
static strait_err silu_cols_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                                 strait_tensor x, int64_t first) {
    assert(strait_cuda_same_shape(d_x, x) && d_y.rows == x.rows && first + x.cols <= d_y.cols);
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, d_y.data, x.data, x.rows, d_y.cols,
                                                   x.cols, first);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "silu_cols_back"),
                              strait_cuda_by_rows(x.rows, x.cols, strait_cuda_wide(x.dtype)), args);
}

/* One warp per row: rows of the autoencoder are narrow, and a warp needs no barrier. */
static strait_err norm_silu_back(struct strait_stream *s, const strait_norm_silu_grads *at) {
    strait_norm_silu_grads g = *at;
    assert(strait_cuda_same_shape(g.d_a, g.a) && strait_cuda_same_shape(g.d_h, g.a));
    assert(strait_cuda_same_shape(g.scaled, g.a));
    assert(g.plus.data == NULL || strait_cuda_same_shape(g.plus, g.n));
    assert(g.scaled.dtype == g.a.dtype && g.d_a.dtype == g.a.dtype && g.d_h.dtype == g.a.dtype);
    assert(strait_cuda_same_shape(g.d_y, g.n) && g.n.rows == g.a.rows);
    assert(g.n.dtype == g.a.dtype && g.d_y.dtype == g.a.dtype);
    assert(g.plus.data == NULL || g.plus.dtype == g.a.dtype);
    strait_cuda_norm_silu_args args = {.scaled = g.scaled.data,
                                       .d_a = g.d_a.data,
                                       .d_y = g.d_y.data,
                                       .d_h = g.d_h.data,
                                       .a = g.a.data,
                                       .n = g.n.data,
                                       .rstd = g.rstd.data,
                                       .plus = g.plus.data,
                                       .rows = g.a.rows,
                                       .cols = g.a.cols,
                                       .width = g.n.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(g.a.dtype, "norm_silu_back"),
                              warp_per_row(g.a.rows), STRAIT_CUDA_ARGS(args));
}

/* f32 only: this form is used where the stream is f32. */
static strait_err window(struct strait_stream *s, strait_tensor y, strait_tensor x,
                         int64_t seq_len) {
    assert(y.rows == x.rows && y.cols % x.cols == 0 && x.rows % seq_len == 0);
    assert(y.dtype == STRAIT_F32 && x.dtype == STRAIT_F32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, x.rows, y.cols, x.cols, seq_len);
    return strait_cuda_launch(s, "window", strait_cuda_over_rows(y.rows, y.cols, 1), args);
}

/* Each thread sums the windows that contain its value, in a fixed order and without atomics. */
static strait_err window_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                              int64_t seq_len) {
    assert(d_y.rows == d_x.rows && d_y.cols % d_x.cols == 0 && d_x.rows % seq_len == 0);
    assert(d_y.dtype == STRAIT_F32 && d_x.dtype == STRAIT_F32);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, d_y.data, d_x.rows, d_x.cols, d_y.cols,
                                                   seq_len);
    return strait_cuda_launch(s, "window_back", strait_cuda_over_rows(d_x.rows, d_x.cols, 1), args);
}

void strait_cuda_autoencoder(struct strait_kernel_set *set) {
    set->autoencoder.window = window;
    set->autoencoder.window_back = window_back;
    set->autoencoder.subtract_norm = subtract_norm;
    set->autoencoder.window_norm = window_norm;
    set->autoencoder.window_norm_back = window_norm_back;
    set->autoencoder.silu_cols = silu_cols;
    set->autoencoder.silu_cols_back = silu_cols_back;
    set->autoencoder.norm_silu_back = norm_silu_back;
}
