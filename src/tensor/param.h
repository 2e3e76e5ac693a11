/* param.h - a named weight, its gradient, and its role in the model.
 *
 * The role lets an optimizer or a codec choose weights without knowing the model. Matrices are
 * stored [outputs x inputs], so y = x W^T, as PyTorch and safetensors files have them. */
#pragma once

#include "tensor/tensor.h"

typedef enum strait_role {
    STRAIT_ROLE_MATRIX,        // reads the residual stream, or is inside a layer
    STRAIT_ROLE_RESIDUAL_OUT,  // output of attention and of the mlp: what a subspace codec
                               // confines
    STRAIT_ROLE_EMBEDDING,     // one row per token id
    STRAIT_ROLE_HEAD,          // computes logits; a tied one is an EMBEDDING
    STRAIT_ROLE_GAIN,          // a vector: no weight decay
    STRAIT_ROLE_CONV,          // taps of a convolution, one row per tap: no weight decay
    STRAIT_ROLE_MIXING,        // k x k, carries a code through a stage: no weight decay
    STRAIT_ROLE_VALUES,        // one row per token id, added to attention's values, or a token
                               // gate of a codec
    STRAIT_ROLE_TOKEN_TABLE,   // one row per token id, added to the stream where a stage begins
    STRAIT_ROLE_BOUNDARY,      // a matrix of a codec
    STRAIT_ROLE_ENCODER_BASIS, // projects what a stage added to the stream onto a code
    STRAIT_ROLE_GATE,          // a matrix that computes token gates from a token table
    STRAIT_ROLE_BIAS,          // a vector added to a projection: no weight decay
    STRAIT_ROLE_COUNT,
} strait_role;

/* Whether rows belong to token ids: they are looked up, and only tokens of the batch have a
 * gradient. */
static inline int strait_role_is_table(strait_role role) {
    return role == STRAIT_ROLE_EMBEDDING || role == STRAIT_ROLE_VALUES ||
           role == STRAIT_ROLE_TOKEN_TABLE;
}

/* Whether this is a small parameter without matrix structure: kept and read in f32, with second
 * moments per value. */
static inline int strait_role_is_gain(strait_role role) {
    return role == STRAIT_ROLE_GAIN || role == STRAIT_ROLE_CONV || role == STRAIT_ROLE_MIXING ||
           role == STRAIT_ROLE_BIAS;
}

enum {
    STRAIT_PARAM_NAME = 64
};

typedef struct strait_param {
    char name[STRAIT_PARAM_NAME]; // "blocks.3.attention.out", independent of the split into stages
    strait_role role;
    strait_tensor value;
    strait_tensor grad; // same shape; absent when not training
    /* What layers read: the value itself, or its bf16 copy where activations are bf16. Absent in
     * codecs, which read the value. */
    strait_tensor compute;
    /* Its gradient may be added later than the other gradients of a microbatch, which are complete
     * when the gradient of the stage's input is: schedules defer the matrix products. */
    int is_deferred;
    /* It never learns, and nothing follows from its gradient, which stays zero: the matrix product
     * that would compute it is left out. */
    int is_idle;
} strait_param;
