/* generator.h - one token after another, each attending to the keys and values kept of those
 * before.
 *
 * Borrows the weights of a stage that holds the whole model. One sequence at a time. */
#pragma once

#include "model/stage.h"

struct strait_generator;

/* Keeps `stage` until closed. */
strait_err strait_generator_open(struct strait_stage *stage, struct strait_generator **out);
void strait_generator_close(struct strait_generator **generator); // accepts NULL

/* Forgets the sequence. */
void strait_generator_reset(struct strait_generator *generator);

/* How many tokens were fed since the last reset; at most the model's context. */
int64_t strait_generator_position(const struct strait_generator *generator);

/* Feeds one token; *logits is on the host, one value a vocabulary entry, soft-capped as in
 * training, and valid until the next call. STRAIT_EINVAL when the context is full. */
strait_err strait_generator_feed(struct strait_generator *generator, int32_t token,
                                 const float **logits);
