/* generator_state.h - the memory of a generator: planned by generator_plan.c, used by generator.c.
 */
#pragma once

#include "model/generator.h"

/* The convolutions of attention and mlp; each keeps its last inputs. */
enum {
    STRAIT_ATTENTION_PAST,
    STRAIT_MLP_PAST,
    STRAIT_QKV_PAST,
    STRAIT_PASTS
};

/* What a block keeps of earlier tokens. */
typedef struct strait_block_cache {
    strait_tensor keys, values;        // [sequences positions x kv_heads head_dim]
    strait_tensor pasts[STRAIT_PASTS]; // [sequences ring x columns], see strait_layer_conv
    strait_tensor part_pasts[STRAIT_PARTS];
} strait_block_cache;

/* Host memory that the device copies from and to without waiting. */
typedef struct strait_generator_staging {
    int32_t *ids; // tokens, sequences, positions: [3 x n_rows]
    strait_sample_row *how;
    int32_t *drawn;
} strait_generator_staging;

struct strait_generator {
    struct strait_stage *stage;
    struct strait_backend *backend;
    struct strait_stream *stream;
    const struct strait_weights *weights;
    strait_generator_spec spec;
    strait_work work; // copy of the stage's, for the rows of a step
    struct strait_slab slab;
    strait_block_cache *caches;
    strait_generator_staging host;
    float *host_logits; // NULL without the head

    /* Tensors with a row per row of a step: those that the slab has from first_row on. */
    int first_row, end_row;
    strait_block_acts acts;
    strait_block_scratch scratch;
    strait_head_scratch head;
    strait_tensor output, logits;
    strait_tensor input, inner;              // inputs of the first block and of the others
    strait_tensor part_inputs[STRAIT_PARTS]; // of blocks but the first
    strait_tensor changed;  // of the first block: what optional parts made of the input they keep
    strait_tensor cos, sin; // of the rows' positions
    strait_tensor drawn, how;

    strait_tensor ids;                          // [3 n_rows x 1] i32: as in host.ids
    strait_tensor tokens, sequences, positions; // its parts for the rows of this step
    strait_tensor table_ids;                    // [n_rows x 1] i32; absent: they are the tokens
    strait_tensor seen;                         // [sequences x V] i8; absent without the head
    int n_blocks;
    int64_t n;          // rows that the caller gave
    int64_t n_computed; // and those computed
    int64_t fed;        // tokens of sequence 0, see strait_generator_feed
    int is_pending;     // work that reads the staging memory may still be queued
};

/* Plans and allocates everything. strait_generator_close accepts what a failure leaves. */
strait_err strait_generator_plan(struct strait_generator *g);

/* Sets the rows of all tensors of a step. */
void strait_generator_set_rows(struct strait_generator *g, int64_t n);
