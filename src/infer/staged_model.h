/* chain.h - the stages of a trained model in one thread, with their codecs between them: the same
 * function that the pipeline computed, for reading. */
#pragma once

#include "config/run_plan.h"
#include "model/generator.h"
#include "store/checkpoint.h"

struct strait_staged_model;

/* Scores n_sequences of a whole context at a time; with 0 it generates instead, token by token.
 * Keeps `backend`. Of the recipe only shape, cut and codec are used. */
strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    int64_t n_sequences, struct strait_staged_model **out);
void strait_staged_model_close(struct strait_staged_model **chain); // accepts NULL

strait_err strait_staged_model_load(struct strait_staged_model *chain,
                                    struct strait_checkpoint *checkpoint);
struct strait_stream *strait_staged_model_stream(struct strait_staged_model *chain);

/* Losses [N x 1] of tokens and targets, [N x 1] i32 on the device. */
strait_err strait_staged_model_score(struct strait_staged_model *chain, strait_tensor tokens,
                                     strait_tensor targets, strait_tensor *losses);

/* Feeds one token of a sequence; see model/generator.h. */
strait_err strait_staged_model_feed(struct strait_staged_model *chain, int32_t token,
                                    const float **logits);
void strait_staged_model_reset(struct strait_staged_model *chain);
int64_t strait_staged_model_position(const struct strait_staged_model *chain);
