/* entry.h - how a sublayer reads the residual stream: a norm, and a causal convolution after it if
 * there is one. Devices that have it compute both in one kernel (shape.fuses_conv). */
#pragma once

#include "model/layer.h"

/* Weights and activations of an entry, borrowed from its sublayer. */
typedef struct strait_entry {
    const strait_param *norm, *conv; // conv is NULL without a convolution
    strait_tensor normed, rstd;      // [N x D] what the sublayer reads, [N x 1]
    strait_tensor before_conv;       // [N x D] output of the norm; absent without a convolution
    strait_tensor past;              // in generation: the last inputs of the convolution
} strait_entry;

/* The entry of a sublayer, from fields that attention and MLP name alike. */
#define STRAIT_ENTRY(layer, acts)                                               \
    ((strait_entry){(layer)->norm, (layer)->conv, (acts)->normed, (acts)->rstd, \
                    (acts)->before_conv, (acts)->past})

/* sum = x + delta, normed, then convolved. */
strait_err strait_entry_forward(const strait_work *work, strait_entry entry, strait_tensor sum,
                                strait_tensor x, strait_tensor delta);

/* The gradient of the convolution, unless the next function computes both: from d_normed to
 * d_before_conv and the taps. It is not deferred, because it computes the two together. */
strait_err strait_entry_conv_backward(const strait_work *work, strait_entry entry,
                                      strait_tensor d_before_conv, strait_tensor d_normed);

/* Adds the gradient of x, the input of the norm, to d, and that of the gain to its own. */
strait_err strait_entry_backward(const strait_work *work, strait_entry entry,
                                 strait_tensor d_before_conv, strait_tensor d_normed,
                                 strait_tensor x, strait_tensor d);
