/* cudnn_attention.h - the graph of causal attention, forward, for cuDNN. */
#pragma once

#include "backend/cuda/cudnn_graph.h"

/* Everything that a graph, and so a plan, depends on. */
enum strait_cudnn_field {
    STRAIT_CUDNN_SEQUENCES,
    STRAIT_CUDNN_QUERY_HEADS,
    STRAIT_CUDNN_KEY_HEADS,
    STRAIT_CUDNN_HEAD_DIM,
    STRAIT_CUDNN_TOKENS,
    STRAIT_CUDNN_HAS_LSE,
    STRAIT_CUDNN_FIELDS
};

typedef struct strait_cudnn_key {
    int64_t at[STRAIT_CUDNN_FIELDS];
} strait_cudnn_key;

/* The tensors that each run binds to addresses: q, k and v inside rows of qkv; scale and lowest are
 * numbers in host memory. */
enum strait_cudnn_uid {
    STRAIT_CUDNN_Q = 1,
    STRAIT_CUDNN_K,
    STRAIT_CUDNN_V,
    STRAIT_CUDNN_Y,
    STRAIT_CUDNN_LSE, // [sequences x heads x tokens]: before 9.26 cuDNN promises no other layout
    STRAIT_CUDNN_SCALE,
    STRAIT_CUDNN_LOWEST, // score of masked keys: -inf
    STRAIT_CUDNN_LAST_UID = STRAIT_CUDNN_LOWEST
};

/* Adds the operations to an empty graph. */
void strait_cudnn_attention_graph(struct strait_cudnn_graph *g, const strait_cudnn_key *key);
