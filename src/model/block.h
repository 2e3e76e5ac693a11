/* block.h - one layer of the transformer: attention and mlp with their residual connections, and
 * the optional parts around them (parts.def). block.c is the only file that knows the order:
 *
 *   decoder of a bottleneck, or optional parts of the stream
 *   attention, optional parts of its output
 *   mlp, optional parts of its output
 *   encoder of a bottleneck
 *
 * A block passes its output on as a pair (mid, delta) whose sum is the residual stream: the next
 * reader adds them while it normalises, which saves a pass over memory for the addition. */
#pragma once

#include "model/parts/attention.h"
#include "model/parts/bottleneck.h"
#include "model/parts/mlp.h"
#include "model/parts/parts.h"

typedef struct strait_block {
    strait_attention attention;
    strait_mlp mlp;
    strait_bottleneck bottleneck;    // decodes before attention, encodes after the mlp
    strait_part parts[STRAIT_PARTS]; // the optional ones
} strait_block;

/* Which optional memory a block needs, or any block of a range. */
typedef struct strait_block_spec {
    strait_bottleneck_ends bottleneck;
    strait_part_set parts;
} strait_block_spec;

strait_block_spec strait_block_spec_of_range(const strait_shape *shape, strait_layer_range range);
/* Of block i of the model, which is in the range. */
strait_block_spec strait_block_spec_at(const strait_shape *shape, strait_layer_range range, int i);

/* For which passes memory is planned, besides the forward pass. */
typedef struct strait_passes {
    int is_training, can_defer;
} strait_passes;

typedef struct strait_block_acts {
    strait_tensor x;   // the input of attention: the residual stream, or u of a decoded code
    strait_tensor mid; // the residual stream after attention
    /* A deferred backward pass leaves gradients in activations that it has read for the last time:
     * that of attention's branch in x, of the mlp's branch in mid, of qkv in attention.qkv. */
    strait_attention_acts attention;
    strait_mlp_acts mlp;
    strait_bottleneck_acts bottleneck;
    strait_part_acts parts[STRAIT_PARTS];
} strait_block_acts;

/* Memory that all blocks of a stage use in turn. */
typedef struct strait_block_scratch {
    strait_tensor branch;     // attention's output
    strait_tensor delta;      // the mlp's output: kept until the next block has read it
    strait_tensor bottleneck; // [N x D]: pad(z) in forward, gradients in backward
    strait_tensor part;       // [N x D], of optional parts in backward
    strait_tensor d_branch;   // [N x D], of a branch whose output an optional part changed
    strait_tensor spare;      // [N x D], swapped with activations that a deferred pass has read
    strait_attention_scratch attention;
    strait_mlp_scratch mlp;
} strait_block_scratch;

/* Lists the parameters of block list->block. */
strait_err strait_block_add_params(struct strait_param_list *list, const strait_block_spec *spec,
                                   strait_block *out);

/* Plans the input, which is kept also when activations are recomputed; and the other activations:
 * what the backward pass cannot compute again by itself, with can_defer everything that the weight
 * gradients need. */
strait_err strait_block_plan_input(const strait_shape *shape, const strait_block_spec *spec,
                                   int64_t n_tokens, struct strait_slab *slab,
                                   strait_block_acts *out);
strait_err strait_block_plan_acts(const strait_shape *shape, const strait_block_spec *spec,
                                  int64_t n_tokens, int can_defer, struct strait_slab *slab,
                                  strait_block_acts *out);

/* Plans scratch in two groups. The first is retained: it must not change between a forward pass and
 * the use of its output, nor between two passes. The second is free between passes, so that others
 * (the head) may share its memory. */
strait_err strait_block_plan_retained(const strait_shape *shape, const strait_block_spec *spec,
                                      int64_t n_tokens, const strait_passes *passes,
                                      struct strait_slab *slab, strait_block_scratch *out);
strait_err strait_block_plan_scratch(const strait_shape *shape, int64_t n_tokens,
                                     const strait_passes *passes, struct strait_slab *slab,
                                     strait_block_scratch *out);

/* With recomputation all blocks use the activations `shared`, except for what plan_input planned.
 */
void strait_block_share_acts(strait_block_acts *acts, const strait_block_acts *shared);

/* After the commit of both: points activations that are not kept to the scratch. */
void strait_block_use_scratch(strait_block_acts *acts, const strait_block_scratch *scratch);

/* Where the caller writes the input of a block that it does not pass as x + delta. */
strait_tensor strait_block_input(const strait_block *block, const strait_block_acts *acts);
void strait_block_set_input(const strait_block *block, strait_block_acts *acts,
                            strait_tensor input);

/* Applies the optional parts of the stream, once per microbatch: computes acts->x from x + delta
 * or, without delta, from strait_block_input. needs_prepare tells whether there are any. The
 * backward function turns d, the gradient of acts->x, into that of the stream. */
int strait_block_needs_prepare(const strait_block *block);
strait_err strait_block_prepare(const strait_work *work, const strait_block *block,
                                const strait_block_acts *acts, strait_tensor x,
                                strait_tensor delta);
strait_err strait_block_prepare_backward(const strait_work *work, const strait_block *block,
                                         const strait_block_acts *acts,
                                         const strait_block_scratch *scratch, strait_tensor d);

/* The input is x + delta; without delta it is already in acts->x, or its code in
 * acts->bottleneck.code. The output is acts->mid + scratch->delta: the next block, the head or
 * strait_block_output adds them. */
strait_err strait_block_forward(const strait_work *work, const strait_block *block,
                                strait_block_acts *acts, const strait_block_scratch *scratch,
                                strait_tensor x, strait_tensor delta);

/* The steps of forward around attention, for generation, which has its own attention:
 * decode_input computes acts->x from a code; attention writes to attention_out; after_attention
 * continues from there. */
strait_err strait_block_decode_input(const strait_work *work, const strait_block *block,
                                     const strait_block_acts *acts,
                                     const strait_block_scratch *scratch);
strait_tensor strait_block_attention_out(const strait_block *block, const strait_block_acts *acts,
                                         const strait_block_scratch *scratch);
strait_err strait_block_after_attention(const strait_work *work, const strait_block *block,
                                        strait_block_acts *acts,
                                        const strait_block_scratch *scratch);

/* The output of a block in one tensor: the sum of the pair, or the code computed from it. */
strait_err strait_block_output(const strait_work *work, const strait_block *block,
                               const strait_block_acts *acts, const strait_block_scratch *scratch,
                               strait_tensor out);

/* Gradients of the residual stream and of the code: of the output, then of the input. */
typedef struct strait_block_grads {
    strait_tensor stream, code;
} strait_block_grads;

/* Turns the gradient of the output into that of the input and overwrites activations. With `defers`
 * the gradients of matrices are left to weight_grads, which may come any time later; tensors of
 * acts and scratch have then been swapped. */
strait_err strait_block_backward(const strait_work *work, const strait_block *block,
                                 strait_block_acts *acts, strait_block_scratch *scratch,
                                 strait_block_grads d, int defers);
strait_err strait_block_weight_grads(const strait_work *work, const strait_block *block,
                                     const strait_block_acts *acts,
                                     const strait_block_scratch *scratch);
