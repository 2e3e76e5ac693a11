/* weights.h - the parameters of a range of blocks: their names, roles, shapes and initial values.
 *
 * Gradients are kept apart by how a step uses them: those of matrices are products, which the first
 * microbatch of a step overwrites; all others are sums, zeroed at the start of a step. */
#pragma once

#include "model/block.h"
#include "model/parts/embedding.h"
#include "model/parts/head.h"
#include "model/parts/lora.h"

struct strait_weights {
    strait_param *params; // in an order that does not depend on how the model is split into stages
    int n_params;
    strait_embedding embedding; // also where only a tied head reads its table
    strait_block *blocks;       // blocks[i] is block first + i of the model
    int n_blocks;
    strait_head head;      // NULLs where the range has no head
    strait_lora *adapters; // of matrices in blocks
    int n_adapters;
    strait_tensor lora_scratch; // absent where layers read f32
    struct strait_slab values;
    struct strait_slab grads;  // of matrices
    struct strait_slab sums;   // all other gradients
    struct strait_slab copies; // in the precision of activations; empty if that is f32, unless
                               // there are adapters, whose sums they hold
};

/* Lists and plans the parameters; gradients only when training. Call commit before use. `w` is
 * zeroed before and must not move until commit; on error the caller calls fini. */
strait_err strait_weights_plan(const strait_shape *shape, strait_layer_range range, int is_training,
                               struct strait_weights *w);
strait_err strait_weights_commit(struct strait_weights *weights, struct strait_backend *backend);
void strait_weights_fini(struct strait_weights *weights); // accepts a zeroed one

/* Initial values. They depend on the seed and each parameter's name alone, so that every stage can
 * compute its own and none has to be sent. */
strait_err strait_weights_init(struct strait_weights *weights, const strait_shape *shape,
                               uint64_t seed, struct strait_stream *stream);

/* Rounds the values into the copies that layers read, if there are any, and adds adapters to them.
 * Call it after any change of the values except by an optimizer, which updates the copies itself:
 * after that, only the adapters have to be applied again. */
strait_err strait_weights_refresh(struct strait_weights *weights, const strait_shape *shape,
                                  struct strait_stream *stream);
strait_err strait_weights_apply_adapters(struct strait_weights *weights, const strait_shape *shape,
                                         struct strait_stream *stream);
