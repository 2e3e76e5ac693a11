/* conv_rotate.c - the convolution of queries, keys and values and the rotation after it: one kernel
 * each way for heads that fit a warp, the kernels of both one after the other for all others. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_conv_rotate.h"
#include "backend/unfused.h"

enum {
    OF_LANE = 2 * STRAIT_CUDA_CONV_ROTATE_PAIRS, // values
    ROWS = 16,        // least rows per block, which also reads the few before them
    RESIDENT = 512,   // threads of the forward kernel that a multiprocessor runs at once
    BACK_SHARES = 264 // most shares of rows of the gradient, whose partial sums are added in order
};

/* Whether a head is a power of two of lanes of one warp. */
static int fits(strait_tensor x, const strait_conv_rotate_params *p, const void *a, const void *b) {
    const int64_t dim = p->rotation.heads.head_dim, lanes = dim / OF_LANE;
    const uintptr_t all = (uintptr_t)x.data | (uintptr_t)a | (uintptr_t)b |
                          (uintptr_t)p->taps.data | (uintptr_t)p->rotation.cos.data |
                          (uintptr_t)p->rotation.sin.data;
    return p->rotation.gain.data == NULL && all % 16 == 0 && dim % OF_LANE == 0 && lanes >= 1 &&
           lanes <= 32 && (lanes & (lanes - 1)) == 0;
}

static strait_cuda_conv_rotate_args args_of(strait_tensor x, strait_tensor rstd,
                                            const strait_conv_rotate_params *p) {
    const strait_heads heads = p->rotation.heads;
    assert(x.cols == (int64_t)(heads.n_query + 2 * heads.n_key) * heads.head_dim);
    assert(p->taps.cols == x.cols && p->taps.rows <= STRAIT_CONV_TAPS);
    assert(x.rows % heads.seq_len == 0 && heads.seq_len <= p->rotation.cos.rows);
    return (strait_cuda_conv_rotate_args){.x = x.data,
                                          .rstd = rstd.data,
                                          .taps = p->taps.data,
                                          .cos = p->rotation.cos.data,
                                          .sin = p->rotation.sin.data,
                                          .rows = x.rows,
                                          .cols = (int)x.cols,
                                          .n_taps = (int)p->taps.rows,
                                          .seq_len = (int)heads.seq_len,
                                          .dim = heads.head_dim,
                                          .n_rotated = heads.n_query + heads.n_key,
                                          .epsilon = p->rotation.epsilon};
}

/* Blocks of nearly equal width, so that few lanes have no column. */
static strait_cuda_grid grid_of(strait_tensor x, int64_t shares) {
    const int64_t n = x.cols / OF_LANE;
    const int64_t blocks = strait_cuda_pieces(n, STRAIT_CUDA_CONV_ROTATE_THREADS);
    return (strait_cuda_grid){.x = shares,
                              .y = blocks,
                              .threads = strait_cuda_threads(strait_cuda_pieces(n, blocks),
                                                             STRAIT_CUDA_CONV_ROTATE_THREADS)};
}

static strait_err forward(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                          strait_tensor between, strait_tensor x,
                          const strait_conv_rotate_params *p) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype && y.data != x.data);
    if (!fits(x, p, y.data, NULL)) return strait_conv_rotate_unfused(s, y, rstd, between, x, p);
    strait_cuda_conv_rotate_args args = args_of(x, rstd, p);
    args.out = y.data;
    strait_cuda_grid grid = grid_of(x, strait_cuda_pieces(x.rows, ROWS));
    const int64_t at_once = strait_cuda_processors(s) * (RESIDENT / (int64_t)grid.threads) / grid.y;
    if (at_once >= 1 && at_once < grid.x) grid.x = at_once; // one wave: a block starts slowly
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "conv_rotate"), grid,
                              STRAIT_CUDA_ARGS(args));
}

/* Each share of rows writes its own partial sums of d_taps, which are added in order afterwards. */
static strait_err back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                       strait_tensor x, strait_tensor rstd, const strait_conv_rotate_params *p) {
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype && d_x.data != d_y.data);
    if (!fits(x, p, d_x.data, d_y.data))
        return strait_conv_rotate_back_unfused(s, d_x, d_y, x, rstd, p);
    const int64_t few = strait_cuda_pieces(x.rows, 4);
    const int64_t shares = few < BACK_SHARES ? few : BACK_SHARES;
    strait_cuda_conv_rotate_args args = args_of(x, rstd, p);
    void *part = NULL;
    STRAIT_TRY(strait_cuda_scratch(
        s, (size_t)(shares * p->taps.rows * p->taps.cols) * sizeof(float), &part));
    args.out = d_x.data;
    args.d_y = d_y.data;
    args.part = part;
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "conv_rotate_back"),
                                  grid_of(x, shares), STRAIT_CUDA_ARGS(args)));
    return strait_cuda_add_columns(s, p->d_taps.data, part, shares, p->taps.rows * p->taps.cols);
}

void strait_cuda_conv_rotate(struct strait_kernel_set *set) {
    set->conv_rotate.forward = forward;
    set->conv_rotate.back = back;
}
