/* weights.h - the parameters of a run of blocks: their names, roles, shapes and first values. */
#pragma once

#include "model/block.h"
#include "model/head.h"

/* Which part of the model: blocks [first, last), with the embedding if first is 0 and the head if
 * last is the number of layers. */
typedef struct strait_part {
    int first, last;
} strait_part;

/* Which ends of a part are narrow, and of its block i, counted in the model. */
strait_ends strait_part_ends(const strait_shape *shape, strait_part part);
strait_ends strait_part_block_ends(const strait_shape *shape, strait_part part, int i);

struct strait_weights {
    strait_param *params; // in an order that does not depend on the cut
    int n_params;
    strait_param *table;  // the embedding; NULL where neither embedding nor tied head is held
    strait_block *blocks; // blocks[i] is block first + i
    int n_blocks;
    strait_head head;       // NULLs where there is none
    int64_t n_written;      // rows of the matrices that write the residual stream
    strait_dtype precision; // of what layers read
    struct strait_slab values;
    struct strait_slab grads;  // of matrices: one product a microbatch makes or adds to each
    struct strait_slab sums;   // the other gradients, which are only ever added to
    struct strait_slab copies; // empty where layers read the values
};

/* Lists and plans the parameters; commit before use. Gradients only when training. */
strait_err strait_weights_plan(const strait_shape *shape, strait_part part, int is_training,
                               struct strait_weights *out);
strait_err strait_weights_commit(struct strait_weights *weights, struct strait_backend *backend);
void strait_weights_fini(struct strait_weights *weights); // accepts a zeroed one

/* First values, from the seed and each parameter's name alone, so that no one has to send them. */
strait_err strait_weights_init(struct strait_weights *weights, const strait_shape *shape,
                               uint64_t seed, struct strait_stream *stream);

/* Rounds the values into the copies that layers read, if there are any: after whatever changed the
 * values, but for an optimizer, which does it as it goes. */
strait_err strait_weights_refresh(struct strait_weights *weights, struct strait_stream *stream);
