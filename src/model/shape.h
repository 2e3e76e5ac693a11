/* shape.h - the sizes and choices that define one decoder-only transformer, with parameter counts
 * and training FLOPs. */
#pragma once

#include "backend/kernels.h"
#include "base/error.h"

#include <stdint.h>

typedef enum strait_activation {
    STRAIT_SWIGLU, // silu(gate) * up
    STRAIT_RELU2,  // max(up, 0)^2
} strait_activation;

typedef enum strait_rope {
    STRAIT_ROPE_FULL, // every pair rotates, by theta^(-2i / head_dim) per position
    STRAIT_ROPE_HALF, // the first half of the pairs rotates, by 1024^(-i / (pairs/2 - 1)); the
                      // others do not
} strait_rope;

/* How the angles of STRAIT_ROPE_FULL are slowed down for contexts longer than those of an earlier
 * training. */
typedef enum strait_rope_scaling {
    STRAIT_ROPE_UNSCALED,
    STRAIT_ROPE_LINEAR, // all angles are divided by rope_factor
    STRAIT_ROPE_LLAMA3, // only those that turn rarely within rope_original tokens (rope.c)
} strait_rope_scaling;

typedef enum strait_init {
    STRAIT_INIT_LLAMA,     // normal, deviation 0.02; smaller for residual output projections
    STRAIT_INIT_YARDSTICK, // unit embeddings, zero residual output projections and head
} strait_init;

typedef struct strait_shape {
    int64_t vocab;
    int64_t context; // longest sequence, in tokens
    int layers, width, heads, kv_heads, head_dim, ffn;
    strait_activation activation;
    strait_rope rope;
    float rope_theta;
    strait_rope_scaling rope_scaling;
    float rope_factor;         // of both scalings
    float rope_low, rope_high; // STRAIT_ROPE_LLAMA3: turns within rope_original, see rope.c
    int64_t rope_original;     // STRAIT_ROPE_LLAMA3: tokens
    int has_qk_norm, has_qk_gain;
    int has_qkv_bias;      // a trained vector is added to queries, keys and values
    float attention_scale; // 0: 1 / sqrt(head_dim)
    float softcap;         // of the logits; 0: not applied
    int is_tied;           // the head is the embedding table
    float norm_epsilon;
    strait_init init;
    /* k > 0: in stages without the head, residual output projections are stored as coordinates in a
     * subspace of k dimensions, whose basis belongs to the codec; and so is what the
     * embedding adds to a fixed table. */
    int subspace;
    int bottleneck;     // k > 0: what crosses a boundary is a code of k values (bottleneck.h)
    int drops_identity; // with a bottleneck: no identity path
    /* Switches and sizes of the optional parts. */
#define PART(name, place, members) members;
#include "model/parts/parts.def"
    /* Local parts let a token see the few before it, and its own id, at little cost. */
    int has_qkv_conv;     // convolve queries, keys and values too, with as many taps as `conv`
    int has_value_tables; // a row per token id is added to attention's values
    int64_t table_rows;   // of token and value tables (backend/table_row.h); 0: one per token id
    int local_every;      // token tables, value tables and the stream's convolution are in block 0
                          // and every so many blocks from there; 0: in every block
    /* Low-rank adapters on matrices of blocks (parts/lora.h); rank 0: none. */
    int lora_rank, lora_targets; // a bit per kind of matrix
    float lora_alpha;
    strait_dtype precision; // of activations and of the weight copies that layers read
    int fuses_conv; // norms and the convolutions after them are one kernel, as suits a GPU, and so
                    // are convolutions and the rotation after them
    int lists_tokens; // positions of token ids are listed once for all tables, as suits a GPU
    int has_fp8; // the matrices of blocks are multiplied in 8 bits; the precision of all else stays
} strait_shape;

/* A range of blocks [first, last): with the embedding if first is 0, with the head if last is the
 * number of layers. */
typedef struct strait_layer_range {
    int first, last;
} strait_layer_range;

/* STRAIT_ECONFIG names the options whose values do not fit together. */
strait_err strait_shape_check(const strait_shape *shape);

/* Whether the width allows norms and convolutions in one kernel (fuses_conv). */
int strait_shape_can_fuse_conv(const strait_shape *shape);

/* Whether block i is one of those that have local parts (local_every). */
int strait_shape_has_local(const strait_shape *shape, int i);

int64_t strait_shape_qkv_cols(const strait_shape *shape);       // queries, keys and values
int64_t strait_shape_attention_cols(const strait_shape *shape); // attention's output, all heads
int64_t strait_shape_mlp_cols(const strait_shape *shape); // the mlp's up projection, with gate

/* Whether any block looks up rows by token id: every stage then needs the tokens. */
int strait_shape_reads_tokens(const strait_shape *shape);

enum {
    STRAIT_SHAPE_WHOLE_TABLE = 32768 // most token ids that have a row each, where the rule decides
};

/* Rows of each token and value table. */
int64_t strait_shape_table_rows(const strait_shape *shape);

/* The rule for runs that name no number of rows: one row per token id up to a vocabulary of
 * STRAIT_SHAPE_WHOLE_TABLE;
 * beyond it as many rows as make the tables a tenth of the parameters from one local block to the
 * next, but at least 6,144. `more_cols` are columns per row of tables that codecs add to a stage.
 * It depends on the model alone, so that another cut into stages gives the same model. Returns 0
 * for one row per token id, as in shape->table_rows. */
int64_t strait_shape_choose_table_rows(const strait_shape *shape, int64_t more_cols);

/* Parameters of a block without optional parts, and of the whole model; codecs not included. */
int64_t strait_shape_block_params(const strait_shape *shape);
int64_t strait_shape_params(const strait_shape *shape);

/* Floating-point operations to train on one token: forward and backward, causal attention. Codecs
 * and what they add to blocks are not included (config/flops.h). */
double strait_shape_train_flops(const strait_shape *shape);

/* Rows of residual output projections in a stage with or without the head. */
int64_t strait_shape_residual_out_rows(const strait_shape *shape, int has_head);

/* Arguments of the attention kernels. */
strait_heads strait_shape_heads(const strait_shape *shape, int64_t seq_len);
