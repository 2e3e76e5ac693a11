/* norm_conv.c - a norm and the convolution after it in one kernel, and their gradient in another.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_norm_conv.h"

static void check_shapes(strait_tensor x, strait_tensor rstd,
                         const strait_norm_conv_params *params) {
    (void)x, (void)rstd, (void)params; // a build without assertions
    assert(x.cols % STRAIT_NORM_CONV_MULTIPLE == 0 && x.cols <= STRAIT_NORM_CONV_WIDEST);
    assert(params->taps.cols == x.cols && params->gain.cols == x.cols && rstd.rows == x.rows);
    assert(params->taps.rows <= STRAIT_CONV_TAPS && x.rows % params->seq_len == 0);
    assert((uintptr_t)x.data % 16 == 0);
}

enum {
    BACK_COLS = 4 // of a thread, as in k_norm_conv.cu
};

/* Whole warps, `wide` columns per thread; groups of rows of n_tensors tensors in shared memory. */
static strait_cuda_grid grid_of(const struct strait_stream *s, strait_tensor x, int64_t blocks,
                                int n_tensors, int64_t wide) {
    const int is_ahead = strait_cuda_of(s->backend)->major * 100 >= STRAIT_CUDA_NORM_CONV_AHEAD;
    const unsigned threads = strait_cuda_threads(x.cols / wide, 512);
    const unsigned group = (unsigned)n_tensors * STRAIT_CUDA_NORM_CONV_BYTES * (unsigned)wide *
                           threads;
    return (strait_cuda_grid){
        .x = blocks, .threads = threads, .shared = is_ahead ? 2 * group : group};
}

static strait_err forward(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          const strait_norm_conv_params *params) {
    check_shapes(x, rstd, params);
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype && y.data != x.data);
    assert((sum.data == NULL) == (delta.data == NULL) && sum.data != x.data);
    strait_cuda_norm_conv_args args = {.y = y.data,
                                       .sum = sum.data,
                                       .rstd = rstd.data,
                                       .x = x.data,
                                       .delta = delta.data,
                                       .gain = params->gain.data,
                                       .taps = params->taps.data,
                                       .rows = x.rows,
                                       .seq_len = params->seq_len,
                                       .cols = (int)x.cols,
                                       .n_taps = (int)params->taps.rows,
                                       .epsilon = params->epsilon};
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(x.dtype, "norm_conv"),
        grid_of(s, x, strait_cuda_shares(x.rows), 2, strait_cuda_wide(x.dtype)),
        STRAIT_CUDA_ARGS(args));
}

/* As many as run at once, so that none waits for a place and partial sums are few. */
static int64_t back_blocks(int64_t rows) {
    const int64_t n = strait_cuda_pieces(rows, 4);
    return n < STRAIT_CUDA_NORM_CONV_SHARES ? n : STRAIT_CUDA_NORM_CONV_SHARES;
}

/* Blocks leave sums over their rows, which are added in order afterwards. */
static strait_err back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                       strait_tensor x, strait_tensor rstd, const strait_norm_conv_params *params) {
    check_shapes(x, rstd, params);
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype &&
           strait_cuda_count(params->d_gain) == x.cols);
    int64_t blocks = back_blocks(x.rows), of_taps = params->taps.rows * x.cols;
    int64_t cols = of_taps + x.cols;
    void *parts = NULL, *d_taps = params->d_taps.data, *d_gain = params->d_gain.data;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(blocks * cols) * sizeof(float), &parts));
    strait_cuda_norm_conv_back_args args = {.d_x = d_x.data,
                                            .parts = parts,
                                            .d_y = d_y.data,
                                            .x = x.data,
                                            .rstd = rstd.data,
                                            .gain = params->gain.data,
                                            .taps = params->taps.data,
                                            .rows = x.rows,
                                            .seq_len = params->seq_len,
                                            .cols = (int)x.cols,
                                            .n_taps = (int)params->taps.rows};
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "norm_conv_back"),
                                  grid_of(s, x, blocks, 3, BACK_COLS), STRAIT_CUDA_ARGS(args)));
    return strait_cuda_launch(
        s, "add_columns_of_two",
        (strait_cuda_grid){.x = strait_cuda_pieces(cols, 32), .threads = 32, .threads_y = 32},
        STRAIT_CUDA_ARGS(d_taps, d_gain, parts, blocks, cols, of_taps));
}

void strait_cuda_norm_conv(struct strait_kernel_set *set) {
    set->norm_conv.forward = forward;
    set->norm_conv.back = back;
}
