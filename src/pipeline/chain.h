/* chain.h - the stages of a trained model in one thread, with their codecs between them: the same
 * function that the pipeline computed, for reading. */
#pragma once

#include "model/generator.h"
#include "pipeline/recipe.h"
#include "store/checkpoint.h"

struct strait_chain;

/* Scores n_sequences of a whole context at a time; with 0 it generates instead, token by token.
 * Keeps `backend`. Of the recipe only shape, cut and codec are used. */
strait_err strait_chain_open(const strait_recipe *recipe, struct strait_backend *backend,
                             int64_t n_sequences, struct strait_chain **out);
void strait_chain_close(struct strait_chain **chain); // accepts NULL

strait_err strait_chain_load(struct strait_chain *chain, struct strait_checkpoint *checkpoint);
struct strait_stream *strait_chain_stream(struct strait_chain *chain);

/* Losses [N x 1] of tokens and targets, [N x 1] i32 on the device. */
strait_err strait_chain_score(struct strait_chain *chain, strait_tensor tokens,
                              strait_tensor targets, strait_tensor *losses);

/* Feeds one token of a sequence; see model/generator.h. */
strait_err strait_chain_feed(struct strait_chain *chain, int32_t token, const float **logits);
void strait_chain_reset(struct strait_chain *chain);
int64_t strait_chain_position(const struct strait_chain *chain);
