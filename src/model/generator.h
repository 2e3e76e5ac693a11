/* generator.h - one token after another, each attending to the keys and values kept of those
 * before.
 *
 * Borrows the weights of a stage, the whole model or a part of it. One sequence at a time. */
#pragma once

#include "model/stage.h"

struct strait_generator;

/* Keeps `stage` until closed. */
strait_err strait_generator_open(struct strait_stage *stage, struct strait_generator **out);
void strait_generator_close(struct strait_generator **generator); // accepts NULL

/* Forgets the sequence. */
void strait_generator_reset(struct strait_generator *g);

/* How many tokens passed since the last reset; at most the model's context. */
int64_t strait_generator_position(const struct strait_generator *g);

/* One token passes a part: embed it into the input (first part), or fill the input; then run the
 * blocks; then read the output, or the logits (last part). STRAIT_EINVAL when the context is full.
 */
strait_err strait_generator_embed(struct strait_generator *g, int32_t token);
strait_tensor strait_generator_input(struct strait_generator *g); // [1 x D], or a code
strait_tensor strait_generator_first_block_input(
    struct strait_generator *g);                                  // as of a stage, after run
strait_tensor strait_generator_token(struct strait_generator *g); // [1 x 1] i32
strait_err strait_generator_run(struct strait_generator *g);
strait_err strait_generator_output(struct strait_generator *g, strait_tensor *out);

/* On the host, one value a vocabulary entry, soft-capped as in training; valid until the next. */
strait_err strait_generator_logits(struct strait_generator *g, const float **logits);

/* All of it, for a stage that holds the whole model. */
strait_err strait_generator_feed(struct strait_generator *g, int32_t token, const float **logits);
