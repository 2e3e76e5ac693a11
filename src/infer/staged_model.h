/* staged_model.h - all stages of a trained model in one thread, with their codecs between them.
 *
 * A model that was trained with codecs is a function of its stages and its codecs: evaluation and
 * generation must send activations through the same boundaries, rounding included. This does so
 * without processes or links, for inference only. */
#pragma once

#include "config/run_plan.h"
#include "model/generator.h"
#include "store/checkpoint.h"

struct strait_staged_model;

/* Prepares to score n_sequences at a time, each of a whole context; with 0, to generate token by
 * token instead. Reads only shape, stage_layers and codec of the plan. Borrows `backend` until
 * close. The caller closes the model. */
strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    int64_t n_sequences, struct strait_staged_model **out);
void strait_staged_model_close(struct strait_staged_model **model); // accepts NULL; sets it to NULL

/* Reads the weights of all stages and codecs. STRAIT_EDATA if a tensor is missing or has another
 * shape. */
strait_err strait_staged_model_load(struct strait_staged_model *model,
                                    struct strait_checkpoint *checkpoint);

/* The stream on which tokens are uploaded and losses are downloaded. */
struct strait_stream *strait_staged_model_stream(struct strait_staged_model *model);

/* Computes the losses [N x 1] of tokens and targets, [N x 1] i32 on the device. A target of -1 has
 * no loss. *losses is valid until the next call. */
strait_err strait_staged_model_score(struct strait_staged_model *model, strait_tensor tokens,
                                     strait_tensor targets, strait_tensor *losses);

/* Feeds the next token of the sequence and returns the logits of the one after it; they are valid
 * until the next call. See model/generator.h. */
strait_err strait_staged_model_feed(struct strait_staged_model *model, int32_t token,
                                    const float **logits);
/* Starts a new sequence; the number of tokens fed since then. */
void strait_staged_model_reset(struct strait_staged_model *model);
int64_t strait_staged_model_position(const struct strait_staged_model *model);
