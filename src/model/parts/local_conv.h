/* local_conv.h - a short causal convolution of the residual stream before a block: each token sees
 * the few before it at little cost.
 *
 *   x_i = s_i + sum over j of w_j s_{i-j}
 *
 * Blocks with local parts have one (strait_shape_has_local) if model.conv is not 0. Taps start at
 * 0: at first x is s. */
#pragma once

#include "model/parts/part.h"

typedef struct strait_local_conv {
    strait_param *taps; // [taps x D], named "conv" in checkpoints; NULL without
} strait_local_conv;

typedef struct strait_local_conv_acts {
    strait_tensor input; // [N x D], s; absent without a convolution
    strait_tensor past;  // in generation: the last inputs (strait_layer_conv)
} strait_local_conv_acts;

strait_err strait_local_conv_add_params(struct strait_param_list *list, strait_local_conv *out);

/* Kept, like a block's input, also when activations are recomputed. */
strait_err strait_local_conv_plan_acts(const strait_shape *shape, int64_t n_tokens,
                                       struct strait_slab *slab, strait_local_conv_acts *out);

/* Computes x from acts->input; nothing without taps. */
strait_err strait_local_conv_forward(const strait_work *work, const strait_local_conv *part,
                                     const strait_local_conv_acts *acts, strait_tensor x);

/* Replaces d, the gradient of x, by that of s, and adds to the gradient of the taps: one kernel
 * computes both. `scratch` [N x D]. */
strait_err strait_local_conv_backward(const strait_work *work, const strait_local_conv *part,
                                      const strait_local_conv_acts *acts, strait_tensor d,
                                      strait_tensor scratch);
