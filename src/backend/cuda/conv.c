/* conv.c - causal convolution over the rows of a sequence, each column by itself. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

enum {
    ROWS = 16 // per block of conv, which also reads the few rows before them
};

/* Each block takes neighbouring rows, each thread its own columns. */
static strait_cuda_grid by_shares(strait_tensor x, int64_t shares) {
    const int64_t wide = strait_cuda_wide(x.dtype);
    const int64_t n = x.cols % wide == 0 ? x.cols / wide : x.cols;
    const int64_t blocks = strait_cuda_pieces(n, 128); // of nearly equal width
    return (strait_cuda_grid){.x = shares,
                              .y = blocks,
                              .threads = strait_cuda_threads(strait_cuda_pieces(n, blocks), 128)};
}

static strait_err conv(struct strait_stream *s, strait_tensor y, strait_tensor x, strait_tensor w,
                       int64_t seq_len) {
    assert(strait_cuda_same_shape(y, x) && w.cols == x.cols && y.dtype == x.dtype);
    assert(w.rows <= STRAIT_CONV_TAPS && x.rows % seq_len == 0);
    const int64_t shares = strait_cuda_pieces(x.rows, ROWS);
    int taps = (int)w.rows;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, w.data, x.rows, x.cols, taps,
                                                   seq_len);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "conv"), by_shares(x, shares), args);
}

/* Each share of rows writes its own partial sums of d_w, which are added in order afterwards. */
static strait_err conv_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                            strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len) {
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(strait_cuda_same_shape(d_w, w) && w.cols == x.cols && d_x.dtype == x.dtype);
    assert(d_y.dtype == x.dtype && w.rows <= STRAIT_CONV_TAPS && x.rows % seq_len == 0);
    int64_t shares = strait_cuda_shares(x.rows);
    int taps = (int)w.rows;
    void *part = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(shares * w.rows * w.cols) * sizeof(float), &part));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, part, d_y.data, x.data, w.data, x.rows,
                                                   x.cols, taps, seq_len);
    STRAIT_TRY(
        strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "conv_back"), by_shares(x, shares), args));
    return strait_cuda_add_columns(s, d_w.data, part, shares, w.rows * w.cols);
}

/* A thread takes a column of all rows: nobody else touches its part of the ring. */
static strait_err conv_cached(struct strait_stream *s, strait_tensor y, strait_tensor ring,
                              strait_tensor x, strait_tensor w, strait_cached_rows at) {
    assert(strait_cuda_same_shape(y, x) && w.cols == x.cols && y.dtype == x.dtype);
    assert(ring.cols == x.cols && ring.dtype == x.dtype && w.rows <= STRAIT_CONV_TAPS);
    int taps = (int)w.rows;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, ring.data, x.data, w.data,
                                                   at.sequences.data, at.positions.data, x.rows,
                                                   x.cols, taps);
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(x.dtype, "conv_cached"),
        (strait_cuda_grid){.x = strait_cuda_pieces(x.cols, 128), .threads = 128}, args);
}

void strait_cuda_conv(struct strait_kernel_set *set) {
    set->conv.forward = conv;
    set->conv.back = conv_back;
    set->conv.cached = conv_cached;
}
