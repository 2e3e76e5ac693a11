/* neck.h - the narrow ends of blocks beside a cut. In a shape with a bottleneck of k what crosses a
 * cut is a code z of k values a token, which the blocks on both sides make and read themselves
 * (docs/codecs.md, resbm b):
 *
 *   the last block before it   mid as ever, o what its mlp writes;  z = mid[:k] + silu(o) enc'
 *   the first block behind it  u = relu(z dec');  attention reads u and adds to pad(z)
 *
 * so that the first k channels go straight through every cut. */
#pragma once

#include "model/layer.h"

/* Which ends of a block, or of a stage, are narrow; and whether a convolution of the stream stands
 * before it. */
typedef struct strait_ends {
    int enters, leaves;
    int is_mixed;
} strait_ends;

typedef struct strait_bottleneck {
    strait_param *dec; // [D x k]; NULL unless a code enters the block
    strait_param *enc; // [k x D]; NULL unless a code leaves it
} strait_bottleneck;

typedef struct strait_bottleneck_acts {
    strait_tensor z; // [N x k], the code that came; outlives the rest, as a block's input does
    strait_tensor o; // [N x D]
    /* What a deferred weight pass needs: the gradients of the code that left, and of z dec'. */
    strait_tensor d_code, d_u; // [N x k], [N x D]
} strait_bottleneck_acts;

strait_err strait_bottleneck_plan_grads(const strait_shape *shape, strait_ends ends,
                                        int64_t n_tokens, struct strait_slab *slab,
                                        strait_bottleneck_acts *out);

/* Makes u, and the stream pad(z), of acts->z. */
strait_err strait_bottleneck_enter(const strait_work *work, const strait_bottleneck *neck,
                                   const strait_bottleneck_acts *acts, strait_tensor u,
                                   strait_tensor stream);
/* Makes the code of mid and acts->o; `wide` [N x D] is scratch, here and below. */
strait_err strait_bottleneck_leave(const strait_work *work, const strait_bottleneck *neck,
                                   const strait_bottleneck_acts *acts, strait_tensor code,
                                   strait_tensor mid, strait_tensor wide);

/* From the gradient of the code that left: of mid into d_mid, of o into d_o. */
strait_err strait_bottleneck_leave_back(const strait_work *work, const strait_bottleneck *neck,
                                        const strait_bottleneck_acts *acts, strait_tensor d_mid,
                                        strait_tensor d_o, strait_tensor d_code);
/* From the gradients of the stream and of u, which is overwritten: of the code that came. */
strait_err strait_bottleneck_enter_back(const strait_work *work, const strait_bottleneck *neck,
                                        strait_tensor d_code, strait_tensor d_stream,
                                        strait_tensor d_u, strait_tensor u);

/* The matrices' gradients: of enc from the code's, of dec from what enter_back left in d_u. */
strait_err strait_bottleneck_leave_weights(const strait_work *work, const strait_bottleneck *neck,
                                           const strait_bottleneck_acts *acts, strait_tensor d_code,
                                           strait_tensor wide);
strait_err strait_bottleneck_enter_weights(const strait_work *work, const strait_bottleneck *neck,
                                           const strait_bottleneck_acts *acts, strait_tensor d_u);
