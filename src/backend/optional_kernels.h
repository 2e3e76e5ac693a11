/* optional_kernels.h - kernels that serve one codec family or one optional part of the model.
 *
 * Each struct is a sub-table of struct strait_kernels, which points to it, or holds NULL where a
 * backend lacks it. A codec or model part names the sub-tables it needs with the bits of enum
 * strait_kernel_need and calls strait_backend_require once, when it is opened; it then uses their
 * entries without asking again. A sub-table that is present is complete.
 *
 * Conventions (streams, order of arguments, aliasing, types, bit-for-bit repeatability) are those
 * of kernels.h. N tokens, C columns. Tokens of a sequence are consecutive rows. */
#pragma once

#include "backend/kernel_params.h"
#include "base/error.h"
#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct strait_stream;

/* One bit per sub-table, in the order of their pointers in struct strait_kernels. */
enum strait_kernel_need {
    STRAIT_NEEDS_CONV = 1 << 0,
    STRAIT_NEEDS_TOPK = 1 << 1,
    STRAIT_NEEDS_LOG_SCALE = 1 << 2,
    STRAIT_NEEDS_HADAMARD = 1 << 3,
    STRAIT_NEEDS_LOWRANK = 1 << 4,
    STRAIT_NEEDS_SUBSPACE = 1 << 5,
    STRAIT_NEEDS_TOKEN_GATES = 1 << 6,
    STRAIT_NEEDS_AUTOENCODER = 1 << 7,
    STRAIT_NEEDS_FP8 = 1 << 8,
    STRAIT_NEEDS_GROUPS = 1 << 9,
    STRAIT_NEEDS_NORM_CONV = 1 << 10,
    STRAIT_NEEDS_TOKEN_TABLES = 1 << 11,
    STRAIT_NEEDS_CONV_ROTATE = 1 << 12,
};

/* The most rows that a convolution reads, and how many inputs of a sequence generation keeps: those
 * taps and the rows of one call. */
#define STRAIT_CONV_TAPS 4
#define STRAIT_CONV_RING 64

/* Local convolution of the model (model.conv, model.qkv_conv): causal, each column by itself. */
struct strait_conv_kernels {
    /* y_i = x_i + sum over j of w_j x_{i-j}, for i - j within the sequence. w is [taps x D], f32,
     * with at most STRAIT_CONV_TAPS rows. */
    strait_err (*forward)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                          strait_tensor w, int64_t seq_len);
    /* Writes d_x; adds to d_w. */
    strait_err (*back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                       strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len);
    /* forward for single tokens: `at` says of which sequence, and at which position, each row is.
     * ring [S STRAIT_CONV_RING x D], of the type of x, holds the last inputs of each sequence, that
     * of position p in row p % STRAIT_CONV_RING; those of all rows are stored first. At most
     * STRAIT_CONV_RING - STRAIT_CONV_TAPS rows may be of one sequence. Rows of no sequence are left
     * alone. */
    strait_err (*cached)(struct strait_stream *s, strait_tensor y, strait_tensor ring,
                         strait_tensor x, strait_tensor w, strait_cached_rows at);
};

/* Sparse payload of codec topk. */
struct strait_topk_kernels {
    /* The `keep` values of each row that are largest in magnitude (the first of equals), in the
     * order of their columns: bf16 values [N x keep], then their columns [N x keep] as u16, or as
     * u32 where C > 65536. */
    strait_err (*pack)(struct strait_stream *s, strait_tensor packed, strait_tensor x, int64_t keep,
                       strait_pack_params params);
    /* Writes 0 to the other columns. Column indices outside the row are counted in stats. */
    strait_err (*restore)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                          strait_tensor packed, int64_t keep);
};

/* Log-scale payload of codec strait: 4 bits per value with a 4-bit scale per row, in steps of half
 * an octave (log_scale.h). The bytes are an f32 top scale, then per row ceil((C + 1) / 2) bytes:
 * the code of the scale, then a code from 0 to 15 for each value, the low half of a byte first.
 * With stochastic rounding the scale covers the row and rounding is unbiased; otherwise values are
 * rounded to the middle of their step. params.bits is not read. stats as for pack_rows. */
struct strait_log_scale_kernels {
    strait_err (*pack)(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                       strait_tensor x, strait_pack_params params);
    /* x of either type. */
    strait_err (*restore)(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                          strait_tensor packed, strait_pack_params params);
};

/* Rotation of codec int4, which spreads outliers over a tile before they are rounded. */
struct strait_hadamard_kernels {
    /* y = x H / sqrt(tile) on every `tile` columns, H the Walsh-Hadamard matrix; the transform is
     * its own inverse. tile is a power of two that divides the columns. y may be x. */
    strait_err (*transform)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            int64_t tile);
};

/* Power iteration of codec lowrank. */
struct strait_lowrank_kernels {
    /* Gram-Schmidt on the columns of q [N x r], from the first to the last, in place. A column that
     * depends on earlier ones becomes 0. */
    strait_err (*orthonormalise)(struct strait_stream *s, strait_tensor q);
};

/* Token-dependent part of codec subspace. */
struct strait_subspace_kernels {
    /* y = table[tokens] - x. The table is f32, y and x of either type. */
    strait_err (*embed_minus)(struct strait_stream *s, strait_tensor y, strait_tensor table,
                              strait_tensor tokens, strait_tensor x);
};

/* Token gates of codec strait: a learned factor per token id and column. */
struct strait_token_gate_kernels {
    /* y = x (1 + table[tokens]), in the first table.cols columns; wider y and x keep their other
     * columns. The table is f32, y and x of either type; y may be x. Without tokens every row has
     * its own row of the table. */
    strait_err (*apply)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                        strait_tensor table, strait_tensor tokens);
    /* d_x = d_y (1 + table[tokens]), and d_rows = d_y x, which embed_back adds up into the table's
     * gradient. All are as wide as the table; d_x may be d_y, and d_rows may be x. */
    strait_err (*apply_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_rows,
                             strait_tensor d_y, strait_tensor x, strait_tensor table,
                             strait_tensor tokens);
};

/* Trained encoders and decoders: codecs resbm and strait. */
struct strait_autoencoder_kernels {
    /* Each row with the rows before it in its sequence, f32: y_i = [x_i, x_{i-1}, ...], as many as
     * fit the columns of y; zeros before the start of the sequence. */
    strait_err (*window)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                         int64_t seq_len);
    strait_err (*window_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                              int64_t seq_len);
    /* window and RMS norm at once, of codes z [N x C], f32, whose columns from params.keep on are
     * not read: the first taps C columns of `both` are [z_i, z_{i-1}, ...], normeds [N x taps C]
     * the same of z rstd, rstd [N x 1] = 1 / sqrt(mean over keep of z^2 + epsilon). Zeros before
     * the sequence and in the padding. both and normeds are of either type. */
    strait_err (*window_norm)(struct strait_stream *s, strait_tensor both, strait_tensor normeds,
                              strait_tensor rstd, strait_tensor z, strait_window_params params);
    /* d_z from both gradients; zeros in the padding. */
    strait_err (*window_norm_back)(struct strait_stream *s, strait_tensor d_z, strait_tensor d_both,
                                   strait_tensor d_normeds, strait_tensor z, strait_tensor rstd,
                                   strait_window_params params);
    /* delta = y - x, in its first columns where it is wider; normed = y rstd, rstd [N x 1] =
     * 1 / sqrt(mean y^2 + epsilon); normed and rstd may both be absent. Either type. */
    strait_err (*subtract_norm)(struct strait_stream *s, strait_tensor delta, strait_tensor normed,
                                strait_tensor rstd, strait_tensor y, strait_tensor x,
                                float epsilon);
    /* Columns of y from `first` on = silu(x), as many as x has, then the columns of `beside`,
     * which is f32, or of y's type, or absent. Either type. */
    strait_err (*silu_cols)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            int64_t first, strait_tensor beside);
    /* d_x from the columns of d_y where silu(x) was. Either type. */
    strait_err (*silu_cols_back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                                 strait_tensor x, int64_t first);
    /* Backward through a norm and the silu after it. Either type. */
    strait_err (*norm_silu_back)(struct strait_stream *s, const strait_norm_silu_grads *at);
};

/* Products of factors rounded to 8 bits: device.precision fp8. */
struct strait_fp8_kernels {
    /* matmul of a 2^-p r(2^p a), and the same of b: r rounds to e4m3, or a to e5m2 where it is a
     * gradient, and p follows from the largest magnitude of the tensor (fp8.h). Rows and columns of
     * y, and the inner size, are multiples of STRAIT_FP8_MULTIPLE. a and b are activations, y of
     * either type. params.is_exact and is_rowwise are not read. After its head the scratch then
     * holds the codes of op(a) [m x k], and those of the transpose of op(b) [n x k]. */
    strait_err (*matmul)(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params, strait_fp8_params fp8);
};

/* Updates of several matrices of one shape at a time: optimizer muon. All tensors are f32. A group
 * of n matrices is one tensor of n times as many rows. */
struct strait_group_kernels {
    /* m = b m + (1 - b) g, u = b m + (1 - b) g with the new m; g = grad scale[0]. Where the norm,
     * scale[1], is non-finite, m stays as it is and u becomes 0. */
    strait_err (*momentum)(struct strait_stream *s, strait_tensor u, strait_tensor m,
                           strait_tensor grad, strait_tensor scale, float b);
    /* x_i = x_i / (sqrt(totals[i]) + epsilon); totals [n x 1]. */
    strait_err (*normalise)(struct strait_stream *s, strait_tensor x, strait_tensor totals,
                            float epsilon);
    /* y_i = alpha op(a_i) op(b_i) + beta c_i for n matrices each; c may be y, and is absent where
     * beta is 0. The bits of y_i depend on a_i, b_i, c_i and their shapes, not on n. */
    strait_err (*multiply)(struct strait_stream *s, strait_tensor y, strait_tensor c,
                           strait_tensor a, strait_tensor b, int n, strait_matmul_params params);
    /* weight = keep weight - rate u; copy, bf16 or absent, receives it rounded. Where the norm,
     * scale[1], is non-finite, nothing is written. */
    strait_err (*apply)(struct strait_stream *s, strait_tensor weight, strait_tensor copy,
                        strait_tensor u, strait_tensor scale, float keep, float rate);
};

/* A norm with gain and the convolution after it (model.conv), in one pass over memory each way: b,
 * the output of rmsnorm, rounded to the type of x, is not stored. The columns are a multiple of
 * STRAIT_NORM_CONV_MULTIPLE, at most STRAIT_NORM_CONV_WIDEST. */
struct strait_norm_conv_kernels {
    /* b = rmsnorm(x + delta), y = conv.forward(b, w); sum and rstd as of rmsnorm, but sum may not
     * be x. */
    strait_err (*forward)(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          const strait_norm_conv_params *params);
    /* conv.back, then rmsnorm_back: x is the input of the norm. Adds to d_x and to the gradients
     * of gain and taps. */
    strait_err (*back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                       strait_tensor x, strait_tensor rstd, const strait_norm_conv_params *params);
};

/* Tables of rows by token id (model.anchors, model.value_tables), several of which share one set of
 * ids [N x 1]: what follows from the ids alone is computed once. */
struct strait_token_table_kernels {
    /* Columns of y from `first` on = those of x + delta + table[ids], as many as the table has;
     * x + delta is rounded to their type first. delta may be absent. All are of one type, y, x and
     * delta of one width; y may be x. */
    strait_err (*add)(struct strait_stream *s, strait_tensor y, strait_tensor x,
                      strait_tensor delta, strait_tensor table, strait_tensor ids, int64_t first);
    /* lists [1 x strait_token_list_cols(N, n_rows)], i32: where each id below n_rows occurs, in a
     * form of the backend's own. */
    strait_err (*list)(struct strait_stream *s, strait_tensor lists, strait_tensor ids,
                       int64_t n_rows);
    /* embed_back of the columns of d_y from `first` on, as many as the table has, with the lists of
     * these ids. The same bits as embed_back. */
    strait_err (*back)(struct strait_stream *s, strait_tensor d_table, strait_tensor d_y,
                       int64_t first, strait_tensor ids, strait_tensor lists);
};

/* The convolution of queries, keys and values (model.qkv_conv) and the rotation after it, in one
 * pass over memory each way where the device can: then what is between them is not stored. */
struct strait_conv_rotate_kernels {
    /* u = conv.forward(x, taps), then y and rstd = rotate(u). `between`, of the shape of x, may be
     * overwritten. */
    strait_err (*forward)(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                          strait_tensor between, strait_tensor x,
                          const strait_conv_rotate_params *params);
    /* rotate_back, then conv.back: x is the input of the convolution. Writes d_x, adds to the
     * gradients of taps and gain. d_y may be overwritten. */
    strait_err (*back)(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                       strait_tensor x, strait_tensor rstd,
                       const strait_conv_rotate_params *params);
};

#ifdef __cplusplus
}
#endif
