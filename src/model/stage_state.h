/* stage_state.h - the struct of a stage, private to stage.c and stage_pass.c. */
#pragma once

#include "model/stage.h"

/* A microbatch in flight. */
struct slot {
    strait_block_acts *acts;    // one per block
    strait_tensor table_ids;    // rows of token and value tables: the tokens, borrowed, or own_ids
    strait_tensor own_ids;      // absent where tables have a row per token id
    strait_tensor lists;        // of table_ids; absent unless training where the shape lists tokens
    strait_documents documents; // likewise
};

struct strait_stage {
    strait_stage_spec spec;
    struct strait_backend *backend; // borrowed
    struct strait_stream stream;
    strait_work work; // table_ids and overwrites_grads are set anew for each pass
    struct strait_weights weights;
    struct strait_slab slab; // activations and scratch
    struct slot *slots;
    strait_block_acts shared; // of the block being recomputed; unused without recomputation
    strait_block_scratch scratch;
    strait_head_scratch head;
    strait_tensor output;
    strait_tensor d;         // gradient of the residual stream, at the block being computed
    strait_tensor d_code;    // gradient of a bottleneck's code; absent without a bottleneck
    strait_tensor basis_f32; // the borrowed basis; work.basis is it, or a rounded copy
    int n_blocks;
    int last_slot; // slot of the last forward pass, -1 before the first
    /* No product of this step is in the gradients of matrices yet: the next overwrites them. Blocks
     * and head differ because their first products come at different times. */
    int overwrites_block_grads, overwrites_head_grads;
};

/* Whether the stage computes the last norm and the logits. */
int strait_stage_has_head(const struct strait_stage *stage);
