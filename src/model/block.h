/* block.h - attention and mlp with their residuals: one layer of the transformer.
 *
 * A block hands its input on as a pair (mid, delta) whose sum is the stream: the next reader adds
 * them while it normalises, so that the sum costs no pass over memory of its own. */
#pragma once

#include "model/attention.h"
#include "model/mlp.h"

typedef struct strait_block {
    strait_attention attention;
    strait_mlp mlp;
} strait_block;

typedef struct strait_block_acts {
    strait_tensor x;   // the stream as it enters
    strait_tensor mid; // after attention
    strait_attention_acts attention;
    strait_mlp_acts mlp;
} strait_block_acts;

typedef struct strait_block_grads {
    strait_attention_grads attention;
    strait_mlp_grads mlp;
} strait_block_grads;

/* Room that every block of a stage uses in turn. */
typedef struct strait_block_scratch {
    strait_tensor branch; // attention's output
    strait_tensor delta;  // the mlp's output: lives until the next block has read it
    strait_attention_scratch attention;
    strait_mlp_scratch mlp;
} strait_block_scratch;

/* Everything but x, which outlives the rest when activations are recomputed. */
strait_err strait_block_plan_acts(const strait_shape *shape, int64_t n_tokens,
                                  struct strait_slab *slab, strait_block_acts *out);
strait_err strait_block_plan_grads(const strait_shape *shape, int64_t n_tokens, int can_defer,
                                   struct strait_slab *slab, strait_block_grads *out);
strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n_tokens, int is_training,
                                     struct strait_slab *slab, strait_block_scratch *out);

/* The stream enters as x + delta; without delta it already stands in acts->x. Leaves as
 * acts->mid + scratch->delta. */
strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta);

/* Turns `d`, the gradient of what left, into the gradient of what entered. With `defers` the
 * matrices' gradients are left to strait_block_weights, which may come any time later. */
strait_err strait_block_back(const strait_work *work, const strait_block *block,
                             const strait_block_acts *acts, const strait_block_grads *grads,
                             const strait_block_scratch *scratch, strait_tensor d, int defers);
strait_err strait_block_weights(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, const strait_block_grads *grads);
