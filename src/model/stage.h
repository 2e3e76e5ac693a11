/* stage.h - a run of blocks, with the embedding at one end and the head at the other: what one
 * worker holds, up to the whole model.
 *
 * Up to n_slots microbatches may be in flight; each forward pass of a slot is followed by one
 * backward pass of it. One thread uses a stage. Nothing here allocates after open. */
#pragma once

#include "model/weights.h"

typedef struct strait_stage_spec {
    strait_shape shape;
    strait_part part;
    int64_t n_sequences; // in a microbatch
    int64_t seq_len;
    int n_slots;
    int is_training;
    int recomputes;     // keep only each block's input and run the block again in the backward pass
    int can_defer;      // room to hold back weight gradients (excludes recomputes)
    size_t logit_bytes; // made at a time; 0: what suits the caches of a cpu
} strait_stage_spec;

struct strait_stage;

/* Memory in bytes, as it will be taken. */
typedef struct strait_stage_memory {
    size_t weights, gradients, activations;
} strait_stage_memory;

strait_err strait_stage_plan(const strait_stage_spec *spec, strait_stage_memory *out);

/* Weights are zero until strait_stage_init or a checkpoint fills them. Keeps the backend. */
strait_err strait_stage_open(const strait_stage_spec *spec, struct strait_backend *backend,
                             struct strait_stage **out);
void strait_stage_close(struct strait_stage **stage); // accepts NULL

strait_err strait_stage_init(struct strait_stage *stage, uint64_t seed);

const strait_stage_spec *strait_stage_get_spec(const struct strait_stage *stage);
strait_param *strait_stage_params(struct strait_stage *stage, int *n);
struct strait_stream *strait_stage_stream(struct strait_stage *stage);

/* The parts themselves, for other readers of the same weights. Borrowed. */
const struct strait_weights *strait_stage_weights(const struct strait_stage *stage);
const strait_work *strait_stage_work(const struct strait_stage *stage);

/* A stage without the head of a shape with a subspace: lends it the basis [D x k] and the fixed
 * embedding [V x D], both f32 and kept until close. Before the first forward pass. */
strait_err strait_stage_view(struct strait_stage *stage, strait_tensor basis, strait_tensor fixed);

/* After weights or the lent basis changed otherwise than by init or an optimizer: layers may read
 * rounded copies of them. */
strait_err strait_stage_refresh(struct strait_stage *stage);

/* Where the activations of a slot go before its forward pass, on every stage but the first:
 * [N x D], or [N x k] where the shape has a bottleneck. So is the output, and so are gradients. To
 * be asked anew for every microbatch: a deferred backward pass moves it. */
strait_tensor strait_stage_input(struct strait_stage *stage, int slot);

/* What the first block reads, once the forward pass is under way and until the backward pass, which
 * uses it up: the input itself, unless something stands before the block (local.h). */
strait_tensor strait_stage_entered(struct strait_stage *stage, int slot);

/* tokens [N x 1] i32 on the device, kept until the slot's last pass; used by the first stage, and
 * by all where the shape has tables of ids. */
strait_err strait_stage_forward(struct strait_stage *stage, int slot, strait_tensor tokens);

/* What the last forward pass made, on every stage but the last: valid until the next one. */
strait_err strait_stage_output(struct strait_stage *stage, strait_tensor *out);

/* Last stage, right after the forward pass: losses [N x 1]. With scale also the gradients of the
 * head, and the backward pass of the same slot must come next. */
strait_err strait_stage_loss(struct strait_stage *stage, strait_tensor targets, float scale,
                             strait_tensor *losses);

/* Write the gradient of the output here before a backward pass (the last stage's loss has done so);
 * read the gradient of the input after it, before anything else happens: the two may be one. */
strait_tensor strait_stage_output_gradient(struct strait_stage *stage);
strait_tensor strait_stage_input_gradient(struct strait_stage *stage);

/* The blocks, last to first, down to the gradient of what entered the first. Adds to the gradients
 * of their weights, unless `defers`: then strait_stage_backward_weights does. Then, once whoever
 * read strait_stage_entered has added its share, backward_entry goes on to the gradient of the
 * input. On the first stage the embedding's gradient follows. */
strait_err strait_stage_backward(struct strait_stage *stage, int slot, int defers);
strait_err strait_stage_backward_entry(struct strait_stage *stage, int slot);
strait_err strait_stage_backward_weights(struct strait_stage *stage, int slot);
strait_err strait_stage_backward_embedding(struct strait_stage *stage, strait_tensor tokens);

/* Lets the gradients of all weights begin anew: sums are zero, products are made by the next pass
 * that has some, whatever stood there. Until each had one, gradients of matrices are not to be
 * read.
 */
strait_err strait_stage_zero_gradients(struct strait_stage *stage);
