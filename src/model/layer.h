/* layer.h - the context that every part of the model computes in, and the helpers they share:
 * linear maps, norms, table lookups and causal convolutions. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "model/shape.h"
#include "tensor/param.h"

/* The context of a pass. A stage owns one; tensors in it are borrowed. */
/* Documents that share rows of the context: document i of a microbatch has the tokens from
 * starts[i] to starts[i + 1] - 1, which attend to no other one. On the host. Rotations go on over
 * the row: scores depend on differences of positions alone. */
typedef struct strait_documents {
    const int32_t *starts; // n + 1; borrowed
    int64_t n;             // 0: each sequence is one document
} strait_documents;

typedef struct strait_work {
    const strait_shape *shape;
    const struct strait_kernels *kernels;
    struct strait_stream *stream;
    strait_tensor cos, sin; // [context x head_dim / 2], rotary angles
    int64_t seq_len;
    /* The gradients of matrices hold values of an earlier step: the next product overwrites them
     * instead of adding, which saves a pass that zeroes them. */
    int overwrites_grads;
    /* Only in a stage whose residual output projections are stored as coordinates in a basis (codec
     * subspace, factored); absent elsewhere. */
    strait_tensor basis;           // [D x k]
    strait_tensor fixed_embedding; // [V x D]: the part of the embedding that never changes
    strait_tensor code;            // [N x k], scratch
    strait_documents documents;    // of the current microbatch
    /* Only in a shape with token tables or value tables. */
    strait_tensor table_ids;  // [N x 1], their rows for the tokens of the current microbatch
    strait_tensor table_rows; // [N x widest row], scratch
    strait_tensor lists;      // of table_ids (token_tables->list), where the shape lists tokens
    /* Only with fp8: scratch of the products of blocks. Absent where a product stays in the
     * precision of activations. */
    strait_tensor fp8_space;
    /* Only in generation: which token of which sequence each row is, and that a row must not depend
     * on how many there are. */
    strait_cached_rows at;
    int is_rowwise;
} strait_work;

/* The same context with products in the precision of activations: for the head and for what belongs
 * to a codec, whose gradients or values 8 bits would harm most. */
static inline strait_work strait_layer_without_fp8(const strait_work *work) {
    strait_work same = *work;
    same.fp8_space = (strait_tensor){0};
    return same;
}

/* y = x W^T, W [outputs x inputs]. */
strait_err strait_layer_linear(const strait_work *work, strait_tensor y, strait_tensor x,
                               strait_tensor weight);
/* The gradient of x: the previous stage waits for it. */
strait_err strait_layer_linear_backward(const strait_work *work, strait_tensor d_x,
                                        strait_tensor d_y, strait_tensor weight);
/* Adds to the gradient of W, or overwrites it if work->overwrites_grads: may be deferred. */
strait_err strait_layer_linear_weight_grad(const strait_work *work, strait_tensor d_weight,
                                           strait_tensor d_y, strait_tensor x);

/* The same three for an output projection into the residual stream. With a basis, W holds the
 * coordinates of its rows, and y = (x W^T) basis^T. */
strait_err strait_layer_residual_out(const strait_work *work, strait_tensor y, strait_tensor x,
                                     strait_tensor weight);
strait_err strait_layer_residual_out_backward(const strait_work *work, strait_tensor d_x,
                                              strait_tensor d_y, strait_tensor weight);
strait_err strait_layer_residual_out_weight_grad(const strait_work *work, strait_tensor d_weight,
                                                 strait_tensor d_y, strait_tensor x);

/* Coordinates of x in the basis, and back: code = x basis; y = code basis^T + beta y. */
strait_tensor strait_layer_code_rows(const strait_work *work, int64_t rows); // of work->code
strait_err strait_layer_to_basis(const strait_work *work, strait_tensor code, strait_tensor x);
strait_err strait_layer_from_basis(const strait_work *work, strait_tensor y, strait_tensor code,
                                   float beta);

/* Parameters of the RMS norm with this gain. */
strait_norm_params strait_layer_norm(const strait_work *work, const strait_param *gain);

/* Columns of y from `first` on = those of x + delta + the table's rows for the current tokens;
 * delta may be absent, y may be x. */
strait_err strait_layer_table_add(const strait_work *work, strait_tensor y, strait_tensor x,
                                  strait_tensor delta, strait_tensor table, int64_t first);
/* Adds the columns of d from `first` on to the gradients of those rows. */
strait_err strait_layer_table_backward(const strait_work *work, strait_tensor d_table,
                                       strait_tensor d, int64_t first);

/* Depthwise causal convolution with a residual: y_i = x_i + sum over j of taps_j x_{i-j}. When
 * tokens are generated, `past` holds the last inputs of every sequence (conv->cached); it is absent
 * otherwise. */
strait_err strait_layer_conv(const strait_work *work, strait_tensor y, strait_tensor x,
                             strait_tensor taps, strait_tensor past);

/* n matrices of one width, adjacent in memory, as one matrix. */
strait_tensor strait_layer_join(const strait_tensor *matrices, int n);

/* Plans a tensor: f32, or activations in the precision of the shape. `where` must not move until
 * the slab is committed. */
strait_err strait_layer_plan_f32(struct strait_slab *slab, int64_t rows, int64_t cols,
                                 strait_tensor *where);
strait_err strait_layer_plan_acts(const strait_shape *shape, struct strait_slab *slab, int64_t rows,
                                  int64_t cols, strait_tensor *where);
