/* generator.h - runs a stage on one token at a time, with a cache of the keys and values of the
 * tokens before it, so that a new token costs no pass over the whole sequence.
 *
 * Borrows the weights of a stage: the whole model, or one stage of a chain that passes each token
 * on. One sequence at a time, one thread. Nothing allocates after open. */
#pragma once

#include "model/stage.h"

struct strait_generator;

/* Keeps `stage` until close. STRAIT_ENOMEM if the caches do not fit. */
strait_err strait_generator_open(struct strait_stage *stage, struct strait_generator **out);
void strait_generator_close(struct strait_generator **generator); // accepts NULL

/* Starts a new sequence. */
void strait_generator_reset(struct strait_generator *g);

/* Tokens processed since the last reset; at most the model's context. */
int64_t strait_generator_position(const struct strait_generator *g);

/* One token, step by step: embed (the first stage computes the input, others only keep the id), or
 * write the input; run the blocks; read the output or, on the last stage, the logits. embed returns
 * STRAIT_EDATA for an id outside the vocabulary, run STRAIT_EINVAL when the context is full. */
strait_err strait_generator_embed(struct strait_generator *g, int32_t token);
strait_tensor strait_generator_input(struct strait_generator *g); // [1 x D], or [1 x k] of a code
/* As strait_stage_first_block_input; valid after run. */
strait_tensor strait_generator_first_block_input(struct strait_generator *g);
strait_tensor strait_generator_token(struct strait_generator *g); // [1 x 1] i32
strait_err strait_generator_run(struct strait_generator *g);
strait_err strait_generator_output(struct strait_generator *g, strait_tensor *out);

/* Logits in host memory, one per vocabulary entry, soft-capped as in training; valid until the next
 * call. Waits for the device. STRAIT_EINVAL on a stage without the head. */
strait_err strait_generator_logits(struct strait_generator *g, const float **logits);

/* embed, run and logits, for a stage that holds the whole model. */
strait_err strait_generator_feed(struct strait_generator *g, int32_t token, const float **logits);
