/* stage_state.h - what the files of a stage share. */
#pragma once

#include "model/stage.h"

struct slot {
    strait_block_acts *acts; // one a block
    strait_tensor tokens;    // of the microbatch in it; borrowed
};

struct strait_stage {
    strait_stage_spec spec;
    struct strait_backend *backend;
    struct strait_stream stream;
    strait_work work;
    struct strait_weights weights;
    struct strait_slab slab; // activations and scratch
    struct slot *slots;
    strait_block_acts shared; // of the block at hand, when activations are recomputed
    strait_block_scratch scratch;
    strait_head_scratch head;
    strait_tensor output, d;
    strait_tensor d_code;    // where an end is narrow
    strait_tensor basis_f32; // the basis, f32
    int n_blocks;
    int last_slot; // whose forward pass came last
    int overwrites_block_grads,
        overwrites_head_grads; // no product of this step is in their gradients
};

/* Whether the last norm and the logits are this stage's. */
int strait_stage_has_head(const struct strait_stage *stage);
