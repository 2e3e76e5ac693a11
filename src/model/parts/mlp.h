/* mlp.h - norm, up projection (with a gate for SwiGLU), activation, down projection. Optional: a
 * convolution after the norm. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_mlp {
    strait_param *norm, *gate, *up, *down; // gate is NULL for relu2; gate and up are adjacent
    strait_param *conv;                    // [taps x D], after the norm; NULL without
} strait_mlp;

typedef struct strait_mlp_acts {
    strait_tensor normed, rstd; // [N x D] input of the projection, [N x 1]
    strait_tensor before_conv;  // [N x D] output of the norm; absent without a convolution
    strait_tensor past;         // in generation: the last inputs of the convolution
    strait_tensor pre_act;      // input of the activation; backward leaves its gradient here
    strait_tensor hidden;       // output of the activation; the scratch's where it is not kept
} strait_mlp_acts;

typedef struct strait_mlp_scratch {
    strait_tensor hidden; // of blocks that keep none; in backward its gradient, then it again
    strait_tensor d_normed;
    strait_tensor d_before_conv; // absent without a convolution
} strait_mlp_scratch;

strait_err strait_mlp_add_params(struct strait_param_list *list, strait_mlp *out);

/* Without keeps_hidden, acts->hidden is not planned: the caller sets it to the scratch's, and
 * backward computes it again. Deferred weight gradients need it kept. */
strait_err strait_mlp_plan_acts(const strait_shape *shape, int64_t n_tokens, int keeps_hidden,
                                struct strait_slab *slab, strait_mlp_acts *out);

/* Same contracts as attention.h; weight_grads reads the gradient in acts->pre_act. */
strait_err strait_mlp_forward(const strait_work *work, const strait_mlp *layer,
                              strait_mlp_acts *acts, strait_tensor branch, strait_tensor sum,
                              strait_tensor x, strait_tensor delta);
strait_err strait_mlp_backward(const strait_work *work, const strait_mlp *layer,
                               const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                               strait_tensor d_branch, int defers);
strait_err strait_mlp_norm_backward(const strait_work *work, const strait_mlp *layer,
                                    const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                                    strait_tensor x, strait_tensor d);
strait_err strait_mlp_weight_grads(const strait_work *work, const strait_mlp *layer,
                                   const strait_mlp_acts *acts, strait_tensor d_branch);
