/* local.h - what may stand before a block, and changes the stream itself: a row of a table for the
 * token, and a convolution over the last few tokens:
 *
 *   x_i = s_i + sum over j of w_j s_{i-j},   s = stream + anchor[t]
 *
 * Both stand in block 0 and every so many from there (strait_shape_is_local), the anchor not in
 * block 0, whose stream is the embedding. Taps start at 0, an anchor as a copy of the embedding's
 * first values. */
#pragma once

#include "model/layer.h"

typedef struct strait_local_mix {
    strait_param *conv;   // [taps x D]; NULL without
    strait_param *anchor; // [V x D]; NULL without
} strait_local_mix;

typedef struct strait_local_mix_acts {
    strait_tensor before; // [N x D], s; absent without a convolution, which needs no other x
    strait_tensor past;   // where tokens come one by one: what the convolution remembers
} strait_local_mix_acts;

/* `stream` becomes s; then x, which is the stream itself where there is no convolution. */
strait_err strait_local_mix_forward(const strait_work *work, const strait_local_mix *local,
                                    const strait_local_mix_acts *acts, strait_tensor x,
                                    strait_tensor stream);

/* d, the gradient of x, becomes that of the stream; adds to those of taps and anchor. `room`
 * [N x D] is scratch. */
strait_err strait_local_mix_back(const strait_work *work, const strait_local_mix *local,
                                 const strait_local_mix_acts *acts, strait_tensor d,
                                 strait_tensor capacity);
