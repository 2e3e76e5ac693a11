/* kernel_params.h - argument structs of the kernels in kernels.h and optional_kernels.h.
 *
 * Each is a plain value: tensors inside are borrowed for the duration of the queued work. */
#pragma once

#include "tensor/tensor.h"

#include <assert.h>
#include <stdint.h>

/* How the columns of a [N x (n_query + 2 n_key) P] tensor split into queries, keys and values. */
typedef struct strait_heads {
    int n_query, n_key; // grouped-query attention when n_key < n_query
    int head_dim;       // P
    int64_t seq_len;    // the N tokens are N / seq_len sequences
    float scale;        // of the scores, before softmax
    int is_ragged;      // calls have many lengths: preparing one for each would not pay
} strait_heads;

/* y = alpha op(a) op(b) + beta y. With beta 0 the old y is not read. */
typedef struct strait_matmul_params {
    int transpose_a, transpose_b;
    float alpha, beta;
    int is_exact; // f32 factors keep all their bits, also where a device would round them to tf32
    /* On a cpu a row of y has the same bits however many rows there are. A device promises that
     * only for products of equal numbers of rows. */
    int is_rowwise;
} strait_matmul_params;

/* How a product rounds its factors to 8 bits (fp8.h). */
typedef struct strait_fp8_params {
    int is_gradient;     // a is a gradient: it becomes e5m2, with a wider range than e4m3
    strait_tensor space; // i8, aligned to 256 bytes: scratch of strait_fp8_space bytes or more
} strait_fp8_params;

enum {
    STRAIT_FP8_MULTIPLE = 16, // the sizes of such products are multiples of this
    STRAIT_FP8_HEAD = 256     // bytes of the scratch before the rounded factors
};

/* Bytes of scratch for the product of [m x k] and [k x n]. */
static inline int64_t strait_fp8_space(int64_t m, int64_t n, int64_t k) {
    return STRAIT_FP8_HEAD + (m + n) * k;
}

/* Which token each row of a call is, where tokens of several sequences are generated at once. */
typedef struct strait_cached_rows {
    strait_tensor sequences, positions; // [N x 1] i32; a negative sequence: the row is not used
} strait_cached_rows;

/* How the next token is drawn from one row of logits. Tokens are ordered by their logit, the first
 * of equals first, after the soft cap and the penalty; all limits keep the first ones. */
typedef struct strait_sample_row {
    float temperature; // 0: takes the first token
    float top_p;       // keeps the fewest tokens that together reach this probability; 1: all
    float min_p;       // keeps tokens at least this likely, relative to the first; 0: all
    float penalty;     // of tokens seen: divides their logits above 0, multiplies the others; 1: no
    float random;      // in [0, 1): chooses among what is kept
    float softcap;     // as strait_loss_params
    int32_t top_k;     // keeps the first k; 0: all
    int32_t sequence;  // row of `seen`; negative: this row is not sampled
} strait_sample_row;

/* Probabilities are compared as whole numbers of this fraction of the first token's: sums of them
 * do not depend on their order. */
#define STRAIT_SAMPLE_UNIT 0x1p40f

/* A root-mean-square norm. */
typedef struct strait_norm_params {
    strait_tensor gain; // [1 x D], optional: without it the gain is 1
    float epsilon;
} strait_norm_params;

/* A norm and the convolution after it. */
typedef struct strait_norm_conv_params {
    strait_tensor gain; // [1 x D]
    strait_tensor taps; // [taps x D]
    float epsilon;      // not read by the gradient
    int64_t seq_len;
    strait_tensor d_gain, d_taps; // what the gradient adds to; not read by the forward pass
} strait_norm_conv_params;

enum {
    STRAIT_NORM_CONV_MULTIPLE = 8,
    STRAIT_NORM_CONV_WIDEST = 2048
};

/* Rotary position embedding of queries and keys, and the optional norm before it. */
typedef struct strait_rotate_params {
    strait_heads heads;
    strait_tensor cos, sin; // [seq_len x P/2], of the angle of each pair at each position
    strait_tensor gain;     // [2 x P], optional, of the norm: row 0 for queries, row 1 for keys
    float epsilon;          // of the norm
} strait_rotate_params;

/* A convolution of queries, keys and values and the rotation after it. */
typedef struct strait_conv_rotate_params {
    strait_tensor taps; // [taps x C]
    strait_rotate_params rotation;
    strait_tensor d_taps, d_gain; // what the gradient adds to; not read by the forward pass
} strait_conv_rotate_params;

/* Most positions of one id that a device sums in one piece, and the size of the lists of positions
 * of `rows` ids below n_rows, in values of 4 bytes (token_tables->list). */
#define STRAIT_TOKEN_PIECE 64

static inline int64_t strait_token_pieces(int64_t rows, int64_t n_rows) {
    return (rows < n_rows ? rows : n_rows) + rows / STRAIT_TOKEN_PIECE;
}

static inline int64_t strait_token_list_cols(int64_t rows, int64_t n_rows) {
    return 4 + 4 * strait_token_pieces(rows, n_rows) + 3 * (rows / STRAIT_TOKEN_PIECE) +
           2 * n_rows + 3 * rows;
}

typedef struct strait_adamw_params {
    float learning_rate, beta1, beta2, epsilon, weight_decay;
    int64_t step;       // from 1, for bias correction
    strait_tensor copy; // bf16, optional: receives the new weight, rounded
} strait_adamw_params;

/* One weight of an update, with its moments and gradient. */
typedef struct strait_adamw_item {
    strait_tensor weight, m, v, grad;
    strait_adamw_params params;
} strait_adamw_item;

typedef struct strait_loss_params {
    float softcap; // c: logits l become l / sqrt(1 + (l / c)^2); 0 disables the cap
    float scale;   // of the gradient; with 0 no gradient is computed and the logits are kept
} strait_loss_params;

/* How values become bytes. Where rounding is stochastic, value i of the tensor uses word i % 4 of
 * the random block (seed, stream, counter i / 4): base/rng/rng.h. */
typedef struct strait_pack_params {
    int bits; // per value: 32, 16, 8 or 4
    int is_stochastic;
    uint64_t seed, stream;
    /* How many columns of x are packed, from the first; 0 means all. Restoring does not write the
     * others. The index i of a value counts packed columns only. */
    int64_t cols;
} strait_pack_params;

/* The number of columns that packing x with these parameters reads. */
static inline int64_t strait_pack_cols(strait_tensor x, strait_pack_params params) {
    return params.cols > 0 ? params.cols : x.cols;
}

/* Copies groups of columns: y from column `to` on, x from column `from` on. */
typedef struct strait_regroup_params {
    int64_t n_groups;
    int64_t to, to_cols;     // first column, and columns per group, of y
    int64_t from, from_cols; // the same of x; where to_cols > from_cols the rest becomes 0
    float alpha;
    int adds; // adds to y instead of replacing it
} strait_regroup_params;

/* How each code is joined by those of earlier tokens. Rows of codes are padded: only the first
 * `keep` columns hold values. */
typedef struct strait_window_params {
    int64_t keep;
    int64_t taps; // codes in a window: a token's own and taps - 1 earlier ones
    int64_t seq_len;
    float epsilon; // of the norm
} strait_window_params;

/* Gradients through h = silu(a), a = n W', where n = y rstd is a normed row. The gradient of y is
 * (rstd d_a) W + d_y; the caller computes the product. */
typedef struct strait_norm_silu_grads {
    /* outputs */
    strait_tensor d_a;    // [N x C] = d_h silu'(a)
    strait_tensor scaled; // [N x C] = rstd d_a
    strait_tensor d_y;    // [N x D] = plus - rstd (a . d_a) / D n
    /* inputs */
    strait_tensor d_h, a; // [N x C]
    strait_tensor rstd;   // [N x 1]
    strait_tensor n;      // [N x D]
    strait_tensor plus;   // [N x D], or absent
} strait_norm_silu_grads;

/* CUDA kernels take these by value: the host passes their bytes to the device. */
static_assert(sizeof(strait_pack_params) == 32, "host and device layouts agree");
static_assert(sizeof(strait_sample_row) == 32, "host and device layouts agree");
static_assert(sizeof(strait_regroup_params) == 48, "host and device layouts agree");
static_assert(sizeof(strait_window_params) == 32, "host and device layouts agree");
