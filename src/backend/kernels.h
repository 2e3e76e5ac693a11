/* kernels.h - the mathematics every backend provides.
 *
 * A kernel queues work on a stream and returns at once. An error means the work was refused;
 * work that was accepted and then failed is reported when the stream is waited on. Outputs come
 * first, as in an assignment, and never alias an input unless the entry says "in place".
 * The same call gives the same bits every time, on any number of threads.
 *
 * The loops in cpu/ref_*.c define what each entry means. Everything faster, on any device, is
 * held to them by tests/contract/backend.c.
 *
 * N tokens, D width, F hidden width, V vocabulary, H heads, P width of one head. Tokens of a
 * sequence are consecutive rows.
 *
 * Types. Activations and their gradients (the stream, qkv, hidden, logits) are f32, or, on a
 * backend opened for it, bf16: in one call all of one type, with sums kept in f32 inside. Always
 * f32: gains, rstd, lse, cosines, losses, statistics, gradients of weights, all that an optimizer
 * touches, the taps of convolutions, codes, and the x of compression, but where an entry says
 * "either type". matmul takes a and b of one type and makes either; cast and embed turn
 * any of the two into any. */
#pragma once

#include "base/error.h"
#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct strait_stream;

/* How the columns of a [N x (n_query + 2 n_key) P] tensor are queries, keys and values. */
typedef struct strait_heads {
    int n_query, n_key; // grouped-query attention when n_key < n_query
    int head_dim;
    int64_t seq_len; // the N tokens are N / seq_len sequences
    float scale;     // of the scores, before softmax
} strait_heads;

/* y = alpha op(a) op(b) + beta y. With beta 0 the old y is not read. */
typedef struct strait_matmul_params {
    int transpose_a, transpose_b;
    float alpha, beta;
    int is_exact; // f32 factors are read whole, also where a device would round them to multiply
} strait_matmul_params;

/* A root-mean-square norm. */
typedef struct strait_norm_params {
    strait_tensor gain; // [1 x D], optional: without it the gain is 1
    float epsilon;
} strait_norm_params;

/* How queries and keys turn, and what happens to them before. */
typedef struct strait_rotate_params {
    strait_heads heads;
    strait_tensor cos, sin; // [seq_len x P/2], of the angle of each pair at each position
    strait_tensor gain;     // [2 x P], optional, of the norm: row 0 for queries, row 1 for keys
    float epsilon;          // of the norm
} strait_rotate_params;

typedef struct strait_adamw_params {
    float rate, beta1, beta2, epsilon, decay;
    int64_t step;       // from 1, for bias correction
    strait_tensor copy; // bf16, optional: gets the new weight, rounded
} strait_adamw_params;

/* One weight of an update, with its moments and gradient. */
typedef struct strait_adamw_item {
    strait_tensor weight, m, v, grad;
    strait_adamw_params how;
} strait_adamw_item;

typedef struct strait_loss_params {
    float softcap; // c: logits l become l / sqrt(1 + (l / c)^2); 0 leaves them alone
    float scale;   // of the gradient; with 0 no gradient is made and the logits stay
} strait_loss_params;

/* How values become bytes. Where rounding is stochastic, value i of the tensor draws word i % 4 of
 * (seed, stream, counter i / 4): base/rng.h. */
typedef struct strait_pack_params {
    int bits; // 32, 16, 8 or 4
    int is_stochastic;
    uint64_t seed, stream;
    int64_t
        cols; // how many columns of x cross, from the first; 0: all. Restoring leaves the others
              // alone. A value's place in the tensor is counted as if they were not there.
} strait_pack_params;

static inline int64_t strait_pack_cols(strait_tensor x, strait_pack_params how) {
    return how.cols > 0 ? how.cols : x.cols;
}

/* How groups of columns move: y from column `to` on, x from column `from` on. */
typedef struct strait_regroup_params {
    int64_t n_groups;
    int64_t to, to_cols;     // to_cols, from_cols: of one group
    int64_t from, from_cols; // what a group of y has more than that of x becomes 0
    float alpha;
    int adds; // to y, instead of replacing it
} strait_regroup_params;

/* How a code is widened by those before it: taps codes of `keep` values and nothing else in their
 * columns; places in a sequence, and the epsilon of the norm. */
typedef struct strait_recall_params {
    int64_t keep, taps, seq_len;
    float epsilon;
} strait_recall_params;

/* Back through h = silu(a), a = n W', where n = y rstd is a normed row: what y is to receive is
 * (rstd d_a) W + d_y. */
typedef struct strait_normed_silu {
    /* made */
    strait_tensor d_a;    // [N x C] = d_h silu'(a)
    strait_tensor scaled; // [N x C] = rstd d_a
    strait_tensor d_y;    // [N x D] = plus - rstd (a . d_a) / D n
    /* read */
    strait_tensor d_h, a; // [N x C]
    strait_tensor rstd;   // [N x 1]
    strait_tensor n;      // [N x D]
    strait_tensor plus;   // [N x D], or absent
} strait_normed_silu;

/* Rows that a convolution looks at, at most. */
#define STRAIT_CONV_TAPS 4

/* Values on the wire beyond this size are taken for damage: they count as not finite. */
#define STRAIT_WIRE_LIMIT 0x1p50f

struct strait_kernels {
    /* elementwise; shapes equal */
    strait_err (*fill)(struct strait_stream *s, strait_tensor y, float value);
    strait_err (*cast)(struct strait_stream *s, strait_tensor y, strait_tensor x); // also copies
    strait_err (*add)(struct strait_stream *s, strait_tensor y, strait_tensor a,
                      strait_tensor b); // y may be a or b
    strait_err (*axpy)(struct strait_stream *s, strait_tensor y, float alpha,
                       strait_tensor x); // y += alpha x
    strait_err (*lerp)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                       float t); // y += t (x - y)

    /* linear algebra */
    strait_err (*matmul)(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params how);
    /* total[0] = sum of x^2, added up in double precision in an order fixed by the shape. */
    strait_err (*sum_squares)(struct strait_stream *s, strait_tensor total, strait_tensor x);
    /* The same for n tensors, f32: totals [n x 1], each as sum_squares would make it. */
    strait_err (*sum_squares_each)(struct strait_stream *s, strait_tensor totals,
                                   const strait_tensor *x, int n);
    /* y = x / (sqrt(total[0]) + epsilon); y may be x */
    strait_err (*normalise)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon);

    /* transformer: every forward beside its backward; a backward adds to parameter gradients */
    strait_err (*embed)(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens); // tokens [N x 1] i32, all inside the table
    /* y = what embed makes, less x; table f32, y and x of either type. */
    strait_err (*embed_minus)(struct strait_stream *s, strait_tensor y, strait_tensor table,
                              strait_tensor tokens, strait_tensor x);
    strait_err (*embed_back)(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens);
    /* y = x (1 + the token's row of the table), in the first columns of y and x where they have
     * more than the table. Table f32, y and x of either type; y may be x. */
    strait_err (*gain_rows)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor table, strait_tensor tokens);
    /* d_x = d_y (1 + row), and d_rows = d_y x, what embed_back takes for the table's gradient. All
     * as wide as the table; d_x may be d_y, and d_rows x. */
    strait_err (*gain_rows_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                                 strait_tensor d_y, strait_tensor x, strait_tensor table,
                                 strait_tensor tokens);

    /* sum = x + delta, y = sum * rstd * gain, rstd [N x 1] = 1 / sqrt(mean sum^2 + epsilon).
     * Without delta, sum is absent and y is made of x. sum may be x. */
    strait_err (*rmsnorm)(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          strait_norm_params how);
    /* Adds to d_x and, where there is a gain, to d_gain [1 x D]. */
    strait_err (*rmsnorm_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                               strait_tensor d_y, strait_tensor x, strait_tensor gain,
                               strait_tensor rstd);

    /* Queries and keys: where rstd [N x (n_query + n_key)] is present an RMS norm of each head,
     * then rotation of the pairs (i, i + P/2). Values are copied. Without rstd y may be x. */
    strait_err (*rotate)(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_rotate_params how);
    /* d_x may be d_y. x and rstd are what rotate saw and made; both absent without norm. Adds to
     * d_gain where there is a gain; how.epsilon is not read. */
    strait_err (*rotate_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_rotate_params how);

    /* Causal attention, never a matrix of seq_len x seq_len. y [N x n_query P]; lse [N x n_query],
     * the logarithm of each row's softmax denominator. */
    strait_err (*attention)(struct strait_stream *s, strait_tensor y, strait_tensor lse,
                            strait_tensor qkv, strait_heads heads);
    strait_err (*attention_back)(struct strait_stream *s, strait_tensor d_qkv, strait_tensor d_y,
                                 strait_tensor y, strait_tensor qkv, strait_tensor lse,
                                 strait_heads heads);
    /* One new token per row of qkv [B x ...], attending to `past` earlier positions and itself.
     * keys and values are [B seq_len x n_key P]; the new key and value are stored at row `past`
     * of each sequence. */
    strait_err (*attention_cached)(struct strait_stream *s, strait_tensor y, strait_tensor keys,
                                   strait_tensor values, strait_tensor qkv, int64_t past,
                                   strait_heads heads);

    /* y [N x F] = silu(gate) * up; gate_up [N x 2F], gate first */
    strait_err (*swiglu)(struct strait_stream *s, strait_tensor y, strait_tensor gate_up);
    /* d_gate_up may be gate_up. With y, also what swiglu made, the same bits; y may be d_y. */
    strait_err (*swiglu_back)(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up);
    /* y = max(x, 0)^2 */
    strait_err (*relu2)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* d_x may be x. With y, also what relu2 made; y may be d_y. */
    strait_err (*relu2_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor y,
                             strait_tensor d_y, strait_tensor x);
    /* y = max(x, 0); y may be x */
    strait_err (*relu)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* x is what relu saw or, which says the same, what it made; 0 at 0. d_x may be d_y. */
    strait_err (*relu_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x);

    /* Causal convolution, each column apart: y_i = x_i + sum over j of w_j x_{i-j}, w [taps x D]
     * f32 of at most STRAIT_CONV_TAPS rows, i - j within the sequence. */
    strait_err (*conv)(struct strait_stream *s, strait_tensor y, strait_tensor x, strait_tensor w,
                       int64_t seq_len);
    /* Makes d_x; adds to d_w. */
    strait_err (*conv_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                            strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len);
    /* Adds x to the columns of y from `first` on; makes y of the columns of x from `first` on. */
    strait_err (*add_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first);
    strait_err (*cut_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first);

    /* loss [N x 1] = -log softmax(cap(logits))[target]; 0 where the target is negative. With
     * how.scale, the logits become their own gradient times how.scale, in place. */
    strait_err (*cross_entropy)(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_params how);

    /* update */
    /* scale[0] = min(1, max_norm / norm), scale[1] = norm, norm = sqrt(sum of totals [n x 1]),
     * added up and divided in double precision, from the first to the last. max_norm 0 never clips.
     * A norm that is not finite gives scale[0] = 0. */
    strait_err (*clip)(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       double max_norm);
    /* grad is read as grad * scale[0]; where scale has a second value, the norm, and that is not
     * finite, nothing changes. v has the shape of weight; or [1 x cols], one second moment
     * a column from the mean of grad^2 over its rows; or [rows x 1], one a row. */
    strait_err (*adamw)(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_params how);
    /* The same for n weights, each as adamw would update it. */
    strait_err (*adamw_each)(struct strait_stream *s, const strait_adamw_item *items, int n,
                             strait_tensor scale);

    /* compression
     *
     * Packed bytes (i8 [1 x n]) of x [N x C]:
     *   bits 32, 16: every value as f32 or bf16;
     *   bits 8, 4:   an f32 base; a scale code (u8) a row; a row of ceil(C bits / 8) bytes of
     *                signed codes, two's complement, the low half of a byte first.
     * Scale code c stands for base 2^((c - 255) / 16), 0 for scale 0; a value is its code times the
     * scale of its row (scale.h). Values that are not finite, or larger than STRAIT_WIRE_LIMIT, are
     * packed and restored as 0 and counted.
     *
     * stats [N x 3], optional: squared error, squared size, values that counted as not finite; of
     * a row, added to what stands there. */
    strait_err (*pack_rows)(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_params how);
    /* x of either type. The error of a restored row is 0 in stats. */
    strait_err (*restore_rows)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_params how);
    /* The same of 4 bits a value with a scale of 4 bits, in steps of half an octave (octave.h): an
     * f32 top; a row of ceil((C + 1) / 2) bytes: the scale's code, then a code from 0 to 15 a
     * value, the low half of a byte first. Stochastic rows are covered by their scale and unbiased,
     * others are rounded to the middle of their step. how.bits is not read. What is restored is of
     * either type. */
    strait_err (*pack_octaves)(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                               strait_tensor x, strait_pack_params how);
    strait_err (*restore_octaves)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                                  strait_tensor packed, strait_pack_params how);
    /* The same for rows whose error is known: x - error is what will be restored. Either type. */
    strait_err (*measure_rows)(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error);
    /* The `keep` largest values of each row by size (the first of equals), in order of column:
     * bf16 values [N x keep], then their columns [N x keep] as u16, or u32 where C > 65536. */
    strait_err (*pack_top)(struct strait_stream *s, strait_tensor packed, strait_tensor x,
                           int64_t keep, strait_pack_params how);
    /* Zero elsewhere. Columns outside the row are counted in stats. */
    strait_err (*restore_top)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                              strait_tensor packed, int64_t keep);
    /* y = x H / sqrt(tile) on every `tile` columns, H the Walsh-Hadamard matrix: its own inverse.
     * tile is a power of two that divides the columns. y may be x. */
    strait_err (*hadamard)(struct strait_stream *s, strait_tensor y, strait_tensor x, int64_t tile);
    /* y [N x E] = x [N x C] times the rectangular identity: cut off, or filled with zeros. Either
     * type. */
    strait_err (*resize_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* Each row with those before it in its sequence, f32: y_i = [x_i, x_{i-1}, ...], as many as fit
     * y's columns; zeros before the sequence. */
    strait_err (*window)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                         int64_t seq_len);
    strait_err (*window_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                              int64_t seq_len);
    /* y = alpha x, some groups of columns; of y and x each of either type. */
    strait_err (*regroup_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                               strait_regroup_params how);
    /* delta = y - x, in its first columns where it is wider; normed = y rstd, rstd [N x 1] =
     * 1 / sqrt(mean y^2 + epsilon); normed and rstd may both be absent. Either type. */
    strait_err (*part_rows)(struct strait_stream *s, strait_tensor delta, strait_tensor normed,
                            strait_tensor rstd, strait_tensor y, strait_tensor x, float epsilon);
    /* Codes z [N x C], f32, whose columns from how.keep on are not looked at: the first columns of
     * both are [z_i, z_{i-1}, ...], how.taps groups of C columns, and normeds [N x taps C] are the
     * same of z rstd, rstd [N x 1] = 1 / sqrt(mean over keep of z^2 + epsilon); zeros before the
     * sequence and from keep on. both and normeds of either type. */
    strait_err (*recall)(struct strait_stream *s, strait_tensor both, strait_tensor normeds,
                         strait_tensor rstd, strait_tensor z, strait_recall_params how);
    /* d_z of both; zeros from keep on. */
    strait_err (*recall_back)(struct strait_stream *s, strait_tensor d_z, strait_tensor d_both,
                              strait_tensor d_normeds, strait_tensor z, strait_tensor rstd,
                              strait_recall_params how);
    /* The columns of y from `first` on = silu(x), as many as x has, and behind them those of
     * beside, f32 or of y's type, or absent; and d_x from the columns of d_y where silu(x) was.
     * Either type.
     */
    strait_err (*silu_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            int64_t first, strait_tensor beside);
    strait_err (*silu_cols_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                                 strait_tensor x, int64_t first);
    /* Back through a norm and the silu behind it. Either type. */
    strait_err (*normed_silu_back)(struct strait_stream *s, const strait_normed_silu *at);
    /* y = x / (1 + exp(-x)); y may be x. Either type. */
    strait_err (*silu)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* d_x may be d_y */
    strait_err (*silu_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x);
    /* Columns of q [N x r] made orthonormal from the first to the last, in place; a column that
     * depends on those before it becomes 0. */
    strait_err (*orthonormalise)(struct strait_stream *s, strait_tensor q);
};

#ifdef __cplusplus
}
#endif
