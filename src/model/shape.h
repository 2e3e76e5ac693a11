/* shape.h - the sizes and choices that make one decoder transformer. */
#pragma once

#include "backend/kernels.h"
#include "base/error.h"

#include <stdint.h>

typedef enum strait_activation {
    STRAIT_SWIGLU, // silu(gate) * up
    STRAIT_RELU2,  // max(up, 0)^2
} strait_activation;

typedef enum strait_rope {
    STRAIT_ROPE_FULL, // every pair turns, at theta^(-2i / head_dim)
    STRAIT_ROPE_HALF, // the first half of the pairs turns, at 1024^(-i / (pairs/2 - 1)); the rest
                      // stand
} strait_rope;

typedef enum strait_init {
    STRAIT_INIT_LLAMA,     // small normal numbers everywhere
    STRAIT_INIT_YARDSTICK, // unit embeddings, zero output projections and head
} strait_init;

typedef struct strait_shape {
    int64_t vocab;
    int64_t context; // longest sequence
    int layers, width, heads, kv_heads, head_dim, ffn;
    strait_activation activation;
    strait_rope rope;
    float rope_theta;
    int has_qk_norm, has_qk_gain;
    float attention_scale; // 0: 1 / sqrt(head_dim)
    float softcap;         // of the logits; 0: none
    int is_tied;           // the head is the embedding table
    float norm_epsilon;
    strait_init init;
    /* k > 0: in blocks that do not share a stage with the head, what writes the residual stream is
     * stored as coordinates in a subspace of k dimensions, whose basis is lent to the stage, and so
     * is what the embedding adds to a table that never changes. */
    int subspace;
    int bottleneck; // k > 0: what crosses a cut between stages is a code of k values (neck.h)
    /* What lets a token see the few before it, and its own id, at little cost (local.h). */
    int conv;             // taps of causal convolutions; 0: none
    int has_qkv_conv;     // one of queries, keys and values too, of as many taps
    int has_anchors;      // a row of the token's is added to the stream
    int has_value_tables; // and one to attention's values
    int local_every;      // anchors, value tables and the stream's convolution stand in block 0 and
                          // every so many from there; 0: in every block
    strait_dtype precision; // of activations, and of the weights as products read them
} strait_shape;

/* Refuses sizes that do not fit together, naming them. */
strait_err strait_shape_check(const strait_shape *shape);

/* Whether block i begins with what stands only in some blocks. */
int strait_shape_is_local(const strait_shape *shape, int i);

int64_t strait_shape_qkv(const strait_shape *shape);    // columns of queries, keys and values
int64_t strait_shape_mixed(const strait_shape *shape);  // columns of attention's result
int64_t strait_shape_hidden(const strait_shape *shape); // columns of the mlp's first product

int64_t strait_shape_block_params(const strait_shape *shape);
int64_t strait_shape_params(const strait_shape *shape);

/* Floating-point operations to train on one token: forward and backward, causal attention. Without
 * codecs and what they add to blocks (pipeline/flops.h). */
double strait_shape_train_flops(const strait_shape *shape);

/* Rows of what writes the residual stream, in a part with or without the head. */
int64_t strait_shape_written(const strait_shape *shape, int has_head);

strait_heads strait_shape_heads(const strait_shape *shape, int64_t seq_len);
