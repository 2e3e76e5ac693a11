/* block.h - attention and mlp with their residuals: one layer of the transformer.
 *
 * A block hands its input on as a pair (mid, delta) whose sum is the stream: the next reader adds
 * them while it normalises, so that the sum costs no pass over memory of its own. */
#pragma once

#include "model/attention.h"
#include "model/bottleneck.h"
#include "model/local_mix.h"
#include "model/mlp.h"

typedef struct strait_block {
    strait_local_mix local;
    strait_attention attention;
    strait_mlp mlp;
    strait_bottleneck neck;
} strait_block;

/* Which passes room is planned for, besides the forward pass. */
typedef struct strait_passes {
    int is_training, can_defer;
} strait_passes;

typedef struct strait_block_acts {
    strait_local_mix_acts local;
    strait_tensor x;   // the stream as it enters, or what attention reads of a code that enters
    strait_tensor mid; // after attention
    /* A deferred pass leaves gradients where it has read activations for the last time: of what
     * attention wrote in x, of what the mlp wrote in mid, of qkv in attention.qkv. */
    strait_attention_acts attention;
    strait_mlp_acts mlp;
    strait_bottleneck_acts neck;
} strait_block_acts;

/* Room that every block of a stage uses in turn. */
typedef struct strait_block_scratch {
    strait_tensor branch; // attention's output
    strait_tensor delta;  // the mlp's output: lives until the next block has read it
    strait_tensor wide;   // [N x D], of narrow ends
    strait_tensor d_x;    // [N x D], of the stream's convolution
    strait_tensor spare;  // [N x D], changes places with activations that a deferred pass has read
    strait_attention_scratch attention;
    strait_mlp_scratch mlp;
} strait_block_scratch;

/* What enters outlives the rest when activations are recomputed. The rest is what the backward pass
 * needs and cannot make again on its way; with can_defer all that the weights' gradients need. */
strait_err strait_block_plan_input(const strait_shape *shape, strait_ends ends, int64_t n_tokens,
                                   struct strait_slab *slab, strait_block_acts *out);
strait_err strait_block_plan_acts(const strait_shape *shape, strait_ends ends, int64_t n_tokens,
                                  int can_defer, struct strait_slab *slab, strait_block_acts *out);

/* Scratch, first what may not be written between a forward pass and the use of what it made, nor
 * between two passes: whoever uses memory only then may share that of the second. */
strait_err strait_block_plan_held(const strait_shape *shape, strait_ends ends, int64_t n_tokens,
                                  const strait_passes *passes, struct strait_slab *slab,
                                  strait_block_scratch *out);
strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n_tokens,
                                     const strait_passes *passes, struct strait_slab *slab,
                                     strait_block_scratch *out);

/* Once both have memory: what the activations do not keep is the scratch's. */
void strait_block_share(strait_block_acts *acts, const strait_block_scratch *scratch);

/* Whatever stands before a block (local.h): makes acts->x of the stream x + delta, or, without
 * delta, of what stands where strait_block_input says. Once a microbatch; is_local tells whether
 * there is any of it. And from the gradient of acts->x back to that of the stream, in d. */
int strait_block_is_local(const strait_block *block);
strait_tensor strait_block_input(const strait_block *block, const strait_block_acts *acts);
strait_err strait_block_arrive(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, strait_tensor x, strait_tensor delta);
strait_err strait_block_arrive_back(const strait_work *work, const strait_block *block,
                                    const strait_block_acts *acts,
                                    const strait_block_scratch *scratch, strait_tensor d);

/* The stream enters as x + delta; without delta it already stands in acts->x, or the code in
 * acts->neck.z. What leaves is made by the next block, the head, or strait_block_output. */
strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta);

/* The first half of it for a code: makes acts->x. And the second half: from attention's branch. */
strait_err strait_block_enter(const strait_work *work, const strait_block *block,
                              const strait_block_acts *acts, const strait_block_scratch *scratch);
strait_err strait_block_finish(const strait_work *work, const strait_block *block,
                               strait_block_acts *acts, const strait_block_scratch *scratch);

/* What left a block, whole: the stream acts->mid + scratch->delta, or the code made of it. */
strait_err strait_block_output(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, const strait_block_scratch *scratch,
                               strait_tensor out);

/* The gradient of what left a block, and then of what entered it: of the stream, of a code. */
typedef struct strait_block_d {
    strait_tensor stream, code;
} strait_block_d;

/* Turns the gradient of what left into that of what entered, and uses up the activations. With
 * `defers` the matrices' gradients are left to strait_block_weights, which may come any time later;
 * tensors of acts and scratch then have changed places. */
strait_err strait_block_back(const strait_work *work, const strait_block *block,
                             strait_block_acts *acts, strait_block_scratch *scratch,
                             strait_block_d d, int defers);
strait_err strait_block_weights(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, const strait_block_scratch *scratch);
