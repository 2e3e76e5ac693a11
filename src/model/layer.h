/* layer.h - what every layer of the model needs at hand, and the linear map they share. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "model/shape.h"
#include "tensor/param.h"

typedef struct strait_work {
    const strait_shape *shape;
    const struct strait_kernels *kernels;
    struct strait_stream *stream;
    strait_tensor cos, sin; // [context x head_dim / 2]
    int64_t seq_len;
    int is_fresh; // gradients of matrices hold nothing yet: the next are made, not added
    /* Of a stage whose writers are stored in coordinates; absent elsewhere. */
    strait_tensor basis; // [D x k]
    strait_tensor fixed; // [V x D]: the part of the embedding that never changes
    strait_tensor code;  // [N x k], scratch
    /* Of a shape with tables of ids. */
    strait_tensor tokens; // [N x 1], of the microbatch at hand
    strait_tensor looked; // [N x widest row], scratch
} strait_work;

/* y = x W^T, W [outputs x inputs] */
strait_err strait_layer_linear(const strait_work *work, strait_tensor y, strait_tensor x,
                               strait_tensor weight);
/* The gradient of x: what a boundary waits for. */
strait_err strait_layer_linear_back(const strait_work *work, strait_tensor d_x, strait_tensor d_y,
                                    strait_tensor weight);
/* Adds to the gradient of W, or makes it where work is fresh: what can wait. */
strait_err strait_layer_linear_weight(const strait_work *work, strait_tensor d_weight,
                                      strait_tensor d_y, strait_tensor x);

/* The same three for a matrix that writes the residual stream: where there is a basis, W holds the
 * coordinates of its rows and y = (x W^T) basis^T. */
strait_err strait_layer_write(const strait_work *work, strait_tensor y, strait_tensor x,
                              strait_tensor weight);
strait_err strait_layer_write_back(const strait_work *work, strait_tensor d_x, strait_tensor d_y,
                                   strait_tensor weight);
strait_err strait_layer_write_weight(const strait_work *work, strait_tensor d_weight,
                                     strait_tensor d_y, strait_tensor x);

/* How the norm with this gain is taken. */
strait_norm_params strait_layer_norm(const strait_work *work, const strait_param *gain);

/* Rows of the embedding table, or, where there is a basis, what they add to the fixed one. */
strait_err strait_layer_embed(const strait_work *work, strait_tensor y, strait_tensor table,
                              strait_tensor tokens);
strait_err strait_layer_embed_back(const strait_work *work, strait_tensor d_table,
                                   strait_tensor d_y, strait_tensor tokens);

/* Rows of a table for the tokens at hand, in scratch. */
strait_err strait_layer_look_up(const strait_work *work, strait_tensor table, strait_tensor *out);

/* Convolution over the tokens before. Where tokens come one by one, `past` [2 taps x D] holds the
 * last of them and room for the result; absent elsewhere. */
strait_err strait_layer_conv(const strait_work *work, strait_tensor y, strait_tensor x,
                             strait_tensor taps, strait_tensor past);

/* Matrices that lie one behind the other, as one. */
strait_tensor strait_layer_join(const strait_tensor *parts, int n);

/* Plans an f32 tensor, and one of activations in the precision of the shape. */
strait_err strait_layer_plan(struct strait_slab *slab, int64_t rows, int64_t cols,
                             strait_tensor *where);
strait_err strait_layer_plan_acts(const strait_shape *shape, struct strait_slab *slab, int64_t rows,
                                  int64_t cols, strait_tensor *where);
