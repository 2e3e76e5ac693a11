/* rotate.c - rotary position embedding of queries and keys, and the optional norm before it. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_rotate.h"

enum {
    HEAD_MAX = 256 // widest head
};

/* One call of either kernel: its parameters, and how threads are split over heads. */
typedef struct layout {
    strait_cuda_rotate_args params;
    int is_wide; // 16-byte accesses are possible
    unsigned threads;
} layout;

/* NULL counts as aligned: an absent tensor restricts nothing. */
static int is_aligned16(const void *a, const void *b, const void *c) {
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15u) == 0;
}

/* `is_even`: whether the activation tensors are aligned to 16 bytes. */
static layout lay_out(strait_dtype dtype, int is_even, strait_rotate_params params) {
    const strait_heads heads = params.heads;
    const int half = heads.head_dim / 2, wide = (int)strait_cuda_wide(dtype);
    const int is_wide = is_even && half % wide == 0 &&
                        is_aligned16(params.gain.data, params.cos.data, params.sin.data);
    const int n_pieces = is_wide ? half / wide : half;
    assert(heads.head_dim % 2 == 0 && params.cos.cols == half && params.cos.rows >= heads.seq_len);
    int group = 1;
    while (group < n_pieces && group < 32)
        group *= 2;
    return (layout){
        .params = {.gain = params.gain.data,
                   .cos = params.cos.data,
                   .sin = params.sin.data,
                   .n_query = heads.n_query,
                   .n_key = heads.n_key,
                   .dim = heads.head_dim,
                   .seq_len = (int)heads.seq_len,
                   .group = group},
        .is_wide = is_wide,
        .threads = strait_cuda_threads((int64_t)(heads.n_query + 2 * heads.n_key) * group, 256)};
}

static strait_err refuse_wide(strait_heads heads) {
    if (heads.head_dim <= HEAD_MAX) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "rotate on cuda: heads are %d wide, at most %d are supported",
                       heads.head_dim, HEAD_MAX);
}

/* Rotation without a norm; a direction of -1 is its gradient. In place, values are not touched. */
static strait_err rotate_pairs(struct strait_stream *s, strait_tensor y, strait_tensor x, layout *l,
                               float direction) {
    const int n_rotated = l->params.n_query + l->params.n_key;
    const int n_touched = y.data == x.data ? n_rotated : n_rotated + l->params.n_key;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, l->params, direction,
                                                   l->is_wide);
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(x.dtype, "rotate_pairs"),
        (strait_cuda_grid){
            .x = x.rows, .threads = strait_cuda_threads((int64_t)n_touched * l->params.group, 256)},
        args);
}

/* Without a norm the simpler kernel does. */
static strait_err rotate(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_rotate_params params) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype);
    STRAIT_TRY(refuse_wide(params.heads));
    layout l = lay_out(x.dtype, is_aligned16(y.data, x.data, NULL), params);
    if (rstd.data == NULL) return rotate_pairs(s, y, x, &l, 1);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, rstd.data, x.data, l.params,
                                                   params.epsilon, l.is_wide);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "rotate"),
                              (strait_cuda_grid){.x = x.rows, .threads = l.threads}, args);
}

/* The gradient of the norm without gains: each row is a block. */
static strait_err rotate_back_plain(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                                    strait_tensor x, strait_tensor rstd, layout *l) {
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, d_y.data, x.data, rstd.data, d_y.rows,
                                                   l->params, l->is_wide);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "rotate_back_plain"),
                              (strait_cuda_grid){.x = d_y.rows, .threads = l->threads}, args);
}

/* Gains need partial sums of fixed shares of the rows. */
static strait_err rotate_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_rotate_params params) {
    assert(strait_cuda_same_shape(d_x, d_y) && d_x.dtype == d_y.dtype);
    assert((x.data == NULL) == (rstd.data == NULL));
    assert(params.gain.data == NULL || d_gain.data != NULL);
    STRAIT_TRY(refuse_wide(params.heads));
    layout l = lay_out(d_y.dtype, is_aligned16(d_x.data, d_y.data, x.data), params);
    if (rstd.data == NULL) return rotate_pairs(s, d_x, d_y, &l, -1);
    if (params.gain.data == NULL) return rotate_back_plain(s, d_x, d_y, x, rstd, &l);
    int64_t rows = d_y.rows, cols = 2 * (int64_t)params.heads.head_dim;
    const int64_t blocks = strait_cuda_shares(rows);
    void *partial = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(blocks * cols) * sizeof(float), &partial));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, partial, d_y.data, x.data, rstd.data,
                                                   rows, l.params, l.is_wide);
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(d_y.dtype, "rotate_back"),
                                  (strait_cuda_grid){.x = blocks, .threads = l.threads}, args));
    return strait_cuda_add_columns(s, d_gain.data, partial, blocks, cols);
}

void strait_cuda_rotate(struct strait_kernel_set *set) {
    set->base.rotate = rotate;
    set->base.rotate_back = rotate_back;
}
