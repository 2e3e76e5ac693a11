/* attention.h - norm, queries and keys and values, rotation, causal attention, output projection.
 */
#pragma once

#include "model/layer.h"

typedef struct strait_attention {
    strait_param *norm, *q, *k, *v, *gain, *out; // gain is NULL without qk_gain; q, k, v adjacent
    strait_param *conv;                          // [taps x D]; NULL without
    strait_param *qkv_conv;                      // [taps x columns of qkv]; NULL without
    strait_param *values;                        // [V x keys], a row a token; NULL without
} strait_attention;

/* What the backward pass needs of one microbatch. */
typedef struct strait_attention_acts {
    strait_tensor normed, rstd;    // [N x D], [N x 1]
    strait_tensor plain;           // [N x D], before the convolution; absent without it
    strait_tensor past, qkv_past;  // where tokens come one by one: what convolutions remember
    strait_tensor projected;       // before the convolution of qkv; absent without it
    strait_tensor raw;             // before rotation; absent where nothing but that comes between
    strait_tensor head_rstd;       // of the per-head norm; absent without it
    strait_tensor qkv, lse, mixed; // rotated; log-denominators; result
} strait_attention_acts;

/* Room shared by all layers of a stage. */
typedef struct strait_attention_scratch {
    strait_tensor d_mixed, d_normed;
    strait_tensor d_qkv;   // before rotation, and, where qkv has a convolution, behind it
    strait_tensor d_plain; // where there is a convolution
} strait_attention_scratch;

strait_err strait_attention_plan_acts(const strait_shape *shape, int64_t n_tokens,
                                      struct strait_slab *slab, strait_attention_acts *out);

/* Norm, projection and rotation: makes acts->normed, rstd and qkv of sum = x + delta. */
strait_err strait_attention_project(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor sum,
                                    strait_tensor x, strait_tensor delta);

/* sum = x + delta (or x itself without delta) enters; the branch's output leaves, to be added to
 * the residual stream by whoever reads it next. */
strait_err strait_attention_forward(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor branch,
                                    strait_tensor sum, strait_tensor x, strait_tensor delta);

/* From the gradient of the branch's output to that of the norm's, in scratch->d_normed. With
 * `defers` the weight gradients are left to the last call, which then wants scratch->d_qkv. */
strait_err strait_attention_back(const strait_work *work, const strait_attention *layer,
                                 const strait_attention_acts *acts,
                                 const strait_attention_scratch *scratch, strait_tensor d_branch,
                                 int defers);
/* From there to the gradient of x, what the norm read: added to d. */
strait_err strait_attention_norm_back(const strait_work *work, const strait_attention *layer,
                                      const strait_attention_acts *acts,
                                      const strait_attention_scratch *scratch, strait_tensor x,
                                      strait_tensor d);
strait_err strait_attention_weights(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor d_branch,
                                    strait_tensor d_qkv);
