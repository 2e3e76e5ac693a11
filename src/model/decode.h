/* decode.h - one token after another, each attending to the keys and values kept of those before.
 *
 * Borrows the weights of a stage that holds the whole model. One sequence at a time. */
#pragma once

#include "model/stage.h"

struct strait_decoder;

/* Keeps `stage` until closed. */
strait_err strait_decoder_open(struct strait_stage *stage, struct strait_decoder **out);
void strait_decoder_close(struct strait_decoder **decoder); // accepts NULL

/* Forgets the sequence. */
void strait_decoder_reset(struct strait_decoder *decoder);

/* How many tokens were fed since the last reset; at most the model's context. */
int64_t strait_decoder_position(const struct strait_decoder *decoder);

/* Feeds one token; *logits is on the host, one value a vocabulary entry, soft-capped as in
 * training, and valid until the next call. STRAIT_EINVAL when the context is full. */
strait_err strait_decoder_feed(struct strait_decoder *decoder, int32_t token, const float **logits);
