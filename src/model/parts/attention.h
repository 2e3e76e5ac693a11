/* attention.h - norm, projection to queries, keys and values, rotary embedding, causal attention,
 * output projection. Optional: a bias of the projection, convolutions after the norm and after the
 * projection, a norm per head of queries and keys, and a table of values per token id. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_attention {
    strait_param *norm, *q, *k, *v, *out; // q, k and v are adjacent
    strait_param *bias;                   // [1 x columns of qkv]; NULL without
    strait_param *gain;                   // [2 x head_dim] of the norm per head; NULL without
    strait_param *conv;                   // [taps x D], after the norm; NULL without
    strait_param *qkv_conv;               // [taps x columns of qkv]; NULL without
    strait_param *values; // [V x kv_heads head_dim], a row per token id added to v; NULL without
} strait_attention;

typedef struct strait_attention_acts {
    strait_tensor normed, rstd;   // [N x D] input of the projection, [N x 1]
    strait_tensor before_conv;    // [N x D] output of the norm; absent without a convolution
    strait_tensor past, qkv_past; // in generation: the last inputs of the convolutions
    strait_tensor projected;      // input of the convolution of qkv; absent without it
    strait_tensor unrotated;      // input of the rotation; absent where it can work in place
    strait_tensor head_rstd;      // of the norm per head; absent without it
    strait_tensor qkv;            // rotated: what attention reads
    strait_tensor lse;            // [N x heads] log of the softmax denominators
    strait_tensor attended;       // [N x heads head_dim] input of the output projection
} strait_attention_acts;

typedef struct strait_attention_scratch {
    strait_tensor d_attended, d_normed;
    strait_tensor d_qkv;         // of the rotation's input, after the convolution of qkv
    strait_tensor d_before_conv; // absent without a convolution
} strait_attention_scratch;

strait_err strait_attention_add_params(struct strait_param_list *list, strait_attention *out);

strait_err strait_attention_plan_acts(const strait_shape *shape, int64_t n_tokens,
                                      struct strait_slab *slab, strait_attention_acts *out);

/* The first half of forward, up to the rotation: fills acts->normed, rstd and qkv from
 * sum = x + delta. Generation continues with its own cache of keys and values. */
strait_err strait_attention_project(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor sum,
                                    strait_tensor x, strait_tensor delta);

/* The input is x + delta, which the norm also writes to `sum`; without delta it is x, and `sum` is
 * absent. `branch` gets the output, which the caller adds to the residual stream. */
strait_err strait_attention_forward(const strait_work *work, const strait_attention *layer,
                                    const strait_attention_acts *acts, strait_tensor branch,
                                    strait_tensor sum, strait_tensor x, strait_tensor delta);

/* From the gradient of the branch to that of the norm's output, in the scratch. With `defers` the
 * caller keeps scratch->d_qkv and calls weight_grads later; otherwise backward does it. */
strait_err strait_attention_backward(const strait_work *work, const strait_attention *layer,
                                     const strait_attention_acts *acts,
                                     const strait_attention_scratch *scratch,
                                     strait_tensor d_branch, int defers);
/* From there to the gradient of x, the input of the norm: added to d. */
strait_err strait_attention_norm_backward(const strait_work *work, const strait_attention *layer,
                                          const strait_attention_acts *acts,
                                          const strait_attention_scratch *scratch, strait_tensor x,
                                          strait_tensor d);
strait_err strait_attention_weight_grads(const strait_work *work, const strait_attention *layer,
                                         const strait_attention_acts *acts, strait_tensor d_branch,
                                         strait_tensor d_qkv);
