/* param.h - a named weight, its gradient, and what it does.
 *
 * The role lets an optimizer or a codec choose weights without knowing the model. Matrices are
 * stored [outputs x inputs], so y = x W^T, as the safetensors of the world have them. */
#pragma once

#include "tensor/tensor.h"

typedef enum strait_role {
    STRAIT_ROLE_MATRIX,        // reads the residual stream, or lies inside a layer
    STRAIT_ROLE_RESIDUAL_OUT,  // output of attention and of the mlp: what a subspace codec
                               // confines
    STRAIT_ROLE_EMBEDDING,     // one row a token
    STRAIT_ROLE_HEAD,          // the matrix that makes logits; a tied one is an EMBEDDING
    STRAIT_ROLE_GAIN,          // a vector: no weight decay
    STRAIT_ROLE_CONV,          // of a convolution, a row each: no weight decay
    STRAIT_ROLE_MIXING,        // k x k, carries a code through a stage: no weight decay
    STRAIT_ROLE_VALUES,        // one row a token, added to attention's values, or a gain of what
                               // crosses a boundary
    STRAIT_ROLE_TOKEN_TABLE,   // one row a token, added to the stream where a stage begins
    STRAIT_ROLE_BOUNDARY,      // a matrix of a codec
    STRAIT_ROLE_ENCODER_BASIS, // the one that turns what a stage added into code
    STRAIT_ROLE_COUNT,
} strait_role;

/* Whether a row belongs to a token: it is looked up, and only the tokens seen have a gradient. */
static inline int strait_role_is_table(strait_role role) {
    return role == STRAIT_ROLE_EMBEDDING || role == STRAIT_ROLE_VALUES ||
           role == STRAIT_ROLE_TOKEN_TABLE;
}

/* Whether every number stands for itself: small, kept and read in f32, with moments of its own. */
static inline int strait_role_is_gain(strait_role role) {
    return role == STRAIT_ROLE_GAIN || role == STRAIT_ROLE_CONV || role == STRAIT_ROLE_MIXING;
}

enum {
    STRAIT_PARAM_NAME = 64
};

typedef struct strait_param {
    char name[STRAIT_PARAM_NAME]; // "blocks.3.attention.out", the same whatever the cut into stages
    strait_role role;
    strait_tensor value;
    strait_tensor grad; // same shape; absent when not training
    /* What layers read: the value itself, or its rounded copy where activations are bf16. Absent in
     * codecs, which read the value. */
    strait_tensor compute;
} strait_param;
