/* mlp.h - norm, one wide product, an activation, one product back. */
#pragma once

#include "model/layer.h"

typedef struct strait_mlp {
    strait_param *norm, *gate, *up, *down; // gate is NULL for relu2; gate and up are adjacent
    strait_param *conv;                    // [taps x D]; NULL without
} strait_mlp;

typedef struct strait_mlp_acts {
    strait_tensor normed, rstd; // [N x D], [N x 1]
    strait_tensor plain;        // [N x D], before the convolution; absent without it
    strait_tensor past;         // where tokens come one by one: what it remembers
    strait_tensor wide;         // before the activation; the backward pass leaves its gradient here
    strait_tensor hidden;       // after it; the scratch's where it is not kept
} strait_mlp_acts;

typedef struct strait_mlp_scratch {
    strait_tensor hidden; // of a layer that keeps none; its gradient, and then made again
    strait_tensor d_normed;
    strait_tensor d_plain; // where there is a convolution
} strait_mlp_scratch;

/* Without `keeps` hidden is left out, and the caller sets it to the scratch's. */
strait_err strait_mlp_plan_acts(const strait_shape *shape, int64_t n_tokens, int keeps,
                                struct strait_slab *slab, strait_mlp_acts *out);

/* Same contracts as attention.h. */
strait_err strait_mlp_forward(const strait_work *work, const strait_mlp *layer,
                              strait_mlp_acts *acts, strait_tensor branch, strait_tensor sum,
                              strait_tensor x, strait_tensor delta);
strait_err strait_mlp_back(const strait_work *work, const strait_mlp *layer,
                           const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                           strait_tensor d_branch, int defers);
strait_err strait_mlp_norm_back(const strait_work *work, const strait_mlp *layer,
                                const strait_mlp_acts *acts, const strait_mlp_scratch *scratch,
                                strait_tensor x, strait_tensor d);
strait_err strait_mlp_weights(const strait_work *work, const strait_mlp *layer,
                              const strait_mlp_acts *acts, strait_tensor d_branch);
