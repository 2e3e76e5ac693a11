/* kernels.h - the mathematics every backend provides.
 *
 * A kernel queues work on a stream and returns at once. An error means that the work was rejected
 * and nothing was queued; a failure of accepted work is reported when the stream is waited for.
 * Outputs come first, as in an assignment, and never alias an input unless the entry says that one
 * "may be" another. The same call gives the same bits every time, on any number of threads.
 *
 * The loops in cpu/ref_*.c define what each entry computes. Faster implementations, on any device,
 * are compared with them by tests/contract/backend_*.c.
 *
 * N tokens, D width, F hidden width, V vocabulary, H heads, P width of one head. Tokens of a
 * sequence are consecutive rows.
 *
 * Types. Activations and their gradients (residual stream, qkv, hidden, logits) are f32, or bf16 on
 * a backend opened for it: all of one type within a call, with sums kept in f32. Always f32 are
 * gains, rstd, lse, cosines, losses, statistics, gradients of weights, everything an optimizer
 * touches, convolution taps, codes, and the x of packing, except where an entry says "either type".
 * matmul takes a and b of one type and writes either; cast and embed convert between both. */
#pragma once

#include "backend/kernel_params.h"
#include "backend/optional_kernels.h"
#include "base/error.h"
#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct strait_stream;

/* Values received over the wire that are larger than this are treated as corrupt: they count as
 * non-finite. */
#define STRAIT_WIRE_LIMIT 0x1p50f

struct strait_kernels {
    /* elementwise; shapes equal */
    strait_err (*fill)(struct strait_stream *s, strait_tensor y, float value);
    /* y = x, converted to the type of y; equal types copy. */
    strait_err (*cast)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* y = a + b; y may be a or b. */
    strait_err (*add)(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b);
    /* y += alpha x */
    strait_err (*axpy)(struct strait_stream *s, strait_tensor y, float alpha, strait_tensor x);
    /* y += t (x - y) */
    strait_err (*lerp)(struct strait_stream *s, strait_tensor y, strait_tensor x, float t);

    /* linear algebra */
    strait_err (*matmul)(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params);
    /* total[0] = sum of x^2, accumulated in double precision in an order fixed by the shape. */
    strait_err (*sum_squares)(struct strait_stream *s, strait_tensor total, strait_tensor x);
    /* sum_squares of n f32 tensors, with the same bits: totals [n x 1]. */
    strait_err (*sum_squares_each)(struct strait_stream *s, strait_tensor totals,
                                   const strait_tensor *x, int n);
    /* y = x / (sqrt(total[0]) + epsilon); y may be x. */
    strait_err (*normalise)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon);

    /* transformer: each forward next to its backward, which adds to parameter gradients */
    /* ids[i] = the row of token id tokens[i] in a table of n_rows rows (table_row.h), both [N x 1]
     * i32; ids may be tokens. */
    strait_err (*table_ids)(struct strait_stream *s, strait_tensor ids, strait_tensor tokens,
                            int64_t n_rows);
    /* y = table[tokens]; tokens [N x 1] are i32 and within the table. */
    strait_err (*embed)(struct strait_stream *s, strait_tensor y, strait_tensor table,
                        strait_tensor tokens);
    strait_err (*embed_back)(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                             strait_tensor tokens);

    /* sum = x + delta, y = sum * rstd * gain, rstd [N x 1] = 1 / sqrt(mean sum^2 + epsilon).
     * Without delta, sum is absent and y is computed from x. sum may be x. */
    strait_err (*rmsnorm)(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          strait_norm_params params);
    /* Adds to d_x and, where there is a gain, to d_gain [1 x D]. */
    strait_err (*rmsnorm_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                               strait_tensor d_y, strait_tensor x, strait_tensor gain,
                               strait_tensor rstd);

    /* Queries and keys: an RMS norm of each head where rstd [N x (n_query + n_key)] is present,
     * then rotation of the pairs (i, i + P/2). Values are copied. Without rstd y may be x. */
    strait_err (*rotate)(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_rotate_params params);
    /* d_x may be d_y. x and rstd are the input and output of rotate, both absent without norm. Adds
     * to d_gain where there is a gain; params.epsilon is not read. */
    strait_err (*rotate_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_rotate_params params);

    /* Causal attention, without a matrix of seq_len x seq_len. y [N x n_query P]; lse [N x n_query]
     * is the logarithm of each row's softmax denominator. */
    strait_err (*attention)(struct strait_stream *s, strait_tensor y, strait_tensor lse,
                            strait_tensor qkv, strait_heads heads);
    strait_err (*attention_back)(struct strait_stream *s, strait_tensor d_qkv, strait_tensor d_y,
                                 strait_tensor y, strait_tensor qkv, strait_tensor lse,
                                 strait_heads heads);
    /* attention_back, then rotate_back of its result without norm, with the same bits. */
    strait_err (*attention_rotate_back)(struct strait_stream *s, strait_tensor d_qkv,
                                        strait_tensor d_y, strait_tensor y, strait_tensor qkv,
                                        strait_tensor lse, strait_rotate_params rotation);
    /* One new token per row of qkv [N x ...]; `at` says of which sequence and at which position.
     * keys and values are [S seq_len x n_key P]: those of all rows are stored first, then each row
     * attends to the positions of its sequence up to its own, so that a call may hold several
     * tokens of one sequence. A row of no sequence is left alone, and so is its y. */
    strait_err (*attention_cached)(struct strait_stream *s, strait_tensor y, strait_tensor keys,
                                   strait_tensor values, strait_tensor qkv, strait_cached_rows at,
                                   strait_heads heads);
    /* tokens [N x 1] i32: one of each row of logits [N x V], which are f32, drawn as the N structs
     * strait_sample_row in rows [N x 32] i8 say. seen [S x V] i8 has 1 for each token that occurred
     * in a sequence, and the token drawn is added to it; absent: no row has a penalty. */
    strait_err (*sample)(struct strait_stream *s, strait_tensor tokens, strait_tensor seen,
                         strait_tensor logits, strait_tensor rows);

    /* y [N x F] = silu(gate) * up; gate_up [N x 2F], gate first. */
    strait_err (*swiglu)(struct strait_stream *s, strait_tensor y, strait_tensor gate_up);
    /* d_gate_up may be gate_up. Where y is present it receives the output of swiglu again, with the
     * same bits, so that the forward pass need not keep it; y may be d_y. */
    strait_err (*swiglu_back)(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up);
    /* y = max(x, 0)^2 */
    strait_err (*relu2)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* d_x may be x. y as for swiglu_back. */
    strait_err (*relu2_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor y,
                             strait_tensor d_y, strait_tensor x);
    /* y = max(x, 0); y may be x. */
    strait_err (*relu)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* x is the input or the output of relu: both have the same sign. The gradient at 0 is 0. d_x
     * may be d_y. */
    strait_err (*relu_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x);
    /* y = x / (1 + exp(-x)); y may be x. Either type. */
    strait_err (*silu)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* d_x may be d_y. */
    strait_err (*silu_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x);

    /* columns */
    /* y[n, :] += row [1 x C], which is f32. */
    strait_err (*add_row)(struct strait_stream *s, strait_tensor y, strait_tensor row);
    /* d_row [1 x C] += the sum over the rows of d_y. */
    strait_err (*add_row_back)(struct strait_stream *s, strait_tensor d_row, strait_tensor d_y);
    /* y[:, first + c] += x[:, c] */
    strait_err (*add_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first);
    /* y[:, c] = x[:, first + c] */
    strait_err (*cut_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first);
    /* y [N x E] = x [N x C] times the rectangular identity: truncated, or padded with zeros. Either
     * type. */
    strait_err (*resize_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x);
    /* y = alpha x for groups of columns; y and x each of either type. */
    strait_err (*regroup_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                               strait_regroup_params params);

    /* loss [N x 1] = -log softmax(cap(logits))[target]; 0 where the target is negative. With
     * params.scale, the logits are replaced by their gradient times params.scale. */
    strait_err (*cross_entropy)(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_params params);

    /* update */
    /* scale[0] = min(1, max_norm / norm), scale[1] = norm, norm = sqrt(sum of totals [n x 1]),
     * summed and divided in double precision, from the first to the last. max_norm 0 never clips.
     * A non-finite norm gives scale[0] = 0. */
    strait_err (*clip)(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       double max_norm);
    /* The gradient is grad * scale[0]. Where scale has a second value, the norm, and it is
     * non-finite, nothing is written. v has the shape of weight; or [1 x cols], one second moment
     * per column from the mean of grad^2 over its rows; or [rows x 1], one per row. */
    strait_err (*adamw)(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_params params);
    /* adamw for n weights, with the same bits. */
    strait_err (*adamw_each)(struct strait_stream *s, const strait_adamw_item *items, int n,
                             strait_tensor scale);

    /* payloads of a boundary
     *
     * Packed bytes (i8 [1 x n]) of x [N x C]:
     *   bits 32, 16: every value as f32 or bf16;
     *   bits 8, 4:   an f32 base; a scale code (u8) per row; per row ceil(C bits / 8) bytes of
     *                signed codes, two's complement, the low half of a byte first.
     * Scale code c means base 2^((c - 255) / 16), and 0 means scale 0; a value is its code times
     * the scale of its row (scale.h). Values that are non-finite, or larger than
     * STRAIT_WIRE_LIMIT, are packed and restored as 0 and counted.
     *
     * stats [N x 3], optional, per row: squared error, squared magnitude, number of non-finite
     * values; added to what stats holds. */
    strait_err (*pack_rows)(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_params params);
    /* x of either type. The error of a restored row is 0 in stats. */
    strait_err (*restore_rows)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_params params);
    /* stats of rows whose error is known: the receiver restores x - error. Either type. */
    strait_err (*measure_rows)(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error);

    /* Kernels of one codec family or model part; NULL where this backend lacks them. Callers check
     * with strait_backend_require when they are opened. */
    const struct strait_conv_kernels *conv;
    const struct strait_topk_kernels *topk;
    const struct strait_log_scale_kernels *log_scale;
    const struct strait_hadamard_kernels *hadamard;
    const struct strait_lowrank_kernels *lowrank;
    const struct strait_subspace_kernels *subspace;
    const struct strait_token_gate_kernels *token_gates;
    const struct strait_autoencoder_kernels *autoencoder;
    const struct strait_fp8_kernels *fp8;
    const struct strait_group_kernels *groups;
    const struct strait_norm_conv_kernels *norm_conv;
    const struct strait_token_table_kernels *token_tables;
    const struct strait_conv_rotate_kernels *conv_rotate;
};

#ifdef __cplusplus
}
#endif
