/* stage.h - the model of one pipeline stage: a range of blocks, with the embedding at one end and
 * the head at the other, up to the whole model.
 *
 * Up to n_slots microbatches may be in flight; each forward pass of a slot is followed by one
 * backward pass of the same slot. One thread uses a stage. Passes only queue work on the stage's
 * stream, and nothing allocates after open. */
#pragma once

#include "model/weights.h"

typedef struct strait_stage_spec {
    strait_shape shape;
    strait_layer_range layers; // of the model that this stage holds
    int64_t n_sequences;       // per microbatch
    int64_t seq_len;
    int n_slots; // microbatches in flight
    int is_training;
    int recomputes;     // keep only each block's input and run the block again in the backward pass
    int can_defer;      // plan memory to defer weight gradients; not together with recomputes
    size_t logit_bytes; // computed at a time; 0: what suits the caches of a cpu
} strait_stage_spec;

struct strait_stage;

/* Device memory in bytes. */
typedef struct strait_stage_memory {
    size_t weights, gradients, activations;
} strait_stage_memory;

/* Computes the memory of a stage without allocating it. Errors as in open. */
strait_err strait_stage_plan(const strait_stage_spec *spec, strait_stage_memory *out);

/* Weights are zero until strait_stage_init or a checkpoint fills them. Keeps `backend` until close.
 * STRAIT_ECONFIG for a shape that does not fit together, STRAIT_ENOMEM if memory is short. */
strait_err strait_stage_open(const strait_stage_spec *spec, struct strait_backend *backend,
                             struct strait_stage **out);
void strait_stage_close(struct strait_stage **stage); // waits for queued work; accepts NULL

/* Initial weights, which depend on the seed and the names of the parameters only. */
strait_err strait_stage_init(struct strait_stage *stage, uint64_t seed);

/* Borrowed until close. */
const strait_stage_spec *strait_stage_get_spec(const struct strait_stage *stage);
strait_param *strait_stage_params(struct strait_stage *stage, int *n);
struct strait_stream *strait_stage_stream(struct strait_stage *stage);
/* Lists of the tokens of the last forward pass in a slot (token_tables->list); absent where the
 * shape does not list them. */
strait_tensor strait_stage_token_lists(struct strait_stage *stage, int slot);
const struct strait_weights *strait_stage_weights(const struct strait_stage *stage);
const strait_work *strait_stage_work(const struct strait_stage *stage);

/* For a stage without the head, in a shape with a subspace: gives it the basis [D x k] and the
 * fixed embedding [V x D], both f32, which must live until close. Before the first forward pass. */
strait_err strait_stage_set_basis(struct strait_stage *stage, strait_tensor basis,
                                  strait_tensor fixed_embedding);

/* Updates the rounded copies that layers may read. Call it after weights or the basis changed
 * otherwise than by init or an optimizer. */
strait_err strait_stage_refresh(struct strait_stage *stage);

/* For a shape with adapters (parts/lora.h); otherwise they do nothing. Call the first after an
 * optimizer has changed the adapters, the second when all gradients of a step are added: it
 * computes those of the adapters. */
strait_err strait_stage_apply_adapters(struct strait_stage *stage);
strait_err strait_stage_adapter_gradients(struct strait_stage *stage);

/* Where the caller writes the input of a slot before its forward pass, on all stages but the first:
 * [N x D], or [N x k] if the shape has a bottleneck; output and gradients have the same shape. Ask
 * again for every microbatch: a deferred backward pass swaps the memory. */
strait_tensor strait_stage_input(struct strait_stage *stage, int slot);

/* What the first block reads: the input itself, or what token table and convolution made of it.
 * Valid from the forward to the backward pass of the slot, which overwrites it. */
strait_tensor strait_stage_first_block_input(struct strait_stage *stage, int slot);

/* What this stage knows of tokens: its first token table, [rows x D], on the first stage the
 * embedding, [V x D]; of the type that layers read. Absent where it has none. */
strait_tensor strait_stage_token_table(const struct strait_stage *stage);

/* `tokens` [N x 1] i32 on the device must live until the slot's last pass. The first stage reads
 * them, and every stage of a shape with token or value tables. */
strait_err strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens);

/* The documents that share rows in the microbatches of a slot, from the next forward pass on; they
 * must live until the slot's last pass. None at first. The shape must have no convolution. */
void strait_stage_set_documents(struct strait_stage *stage, int slot, strait_documents documents);

/* The output of the last forward pass, on all stages but the last; valid until the next one. */
strait_err strait_stage_output(struct strait_stage *stage, strait_tensor *out);

/* Last stage, directly after the forward pass: computes the losses [N x 1]. With a scale other than
 * 0 also the head's gradients; the backward pass of the same slot must then follow next. */
strait_err strait_stage_loss(struct strait_stage *stage, strait_tensor targets, float scale,
                             strait_tensor *losses);

/* Write the gradient of the output here before a backward pass (on the last stage, loss did it).
 * Read the gradient of the input directly after it: the two may be the same memory. */
strait_tensor strait_stage_output_gradient(struct strait_stage *stage);
strait_tensor strait_stage_input_gradient(struct strait_stage *stage);

/* The backward pass, in this order:
 * 1. backward: the blocks, last to first, down to the gradient of strait_stage_first_block_input,
 *    to which the caller may then add. Adds the weight gradients too, unless `defers`.
 * 2. backward_input: from there to the gradient of the input.
 * 3. backward_embedding: on the first stage, the gradient of the embedding.
 * 4. backward_weights: after a backward that deferred them, at any later time, the weight
 *    gradients of the blocks. */
strait_err strait_stage_backward(struct strait_stage *stage, int slot, int defers);
strait_err strait_stage_backward_input(struct strait_stage *stage, int slot);
strait_err strait_stage_backward_embedding(struct strait_stage *stage, strait_tensor tokens);
strait_err strait_stage_backward_weights(struct strait_stage *stage, int slot);

/* Starts a new sum of gradients. Gradients of matrices are not zeroed: the next product overwrites
 * them, so they must not be read before each has had one. */
strait_err strait_stage_zero_gradients(struct strait_stage *stage);

/* The same for the gradients that backward_weights adds (is_deferred), or for all others, in the
 * middle of a step: the caller has taken the sum of the microbatches so far. */
strait_err strait_stage_restart_gradients(struct strait_stage *stage, int is_deferred);
