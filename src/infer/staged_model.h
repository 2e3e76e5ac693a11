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

/* What a model is prepared for: scoring n_sequences of seq_len tokens at a time or, where n_rows is
 * not 0, generating (model/generator.h has the meaning of the numbers). */
typedef struct strait_staged_use {
    int64_t n_sequences;
    int64_t seq_len;             // scoring
    int64_t n_rows, n_positions; // generating
} strait_staged_use;

/* Reads only shape, stage_layers, codec and logit_bytes of the plan. Borrows `backend` until close.
 * The caller closes the model. */
strait_err strait_staged_model_open(const strait_run_plan *plan, struct strait_backend *backend,
                                    strait_staged_use use, struct strait_staged_model **out);
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

/* One step of generation through all stages. See model/generator.h, also for what follows it: the
 * tokens drawn after the first n rows, or their logits. */
strait_err strait_staged_model_step(struct strait_staged_model *model, const strait_token_row *rows,
                                    int64_t n);
strait_err strait_staged_model_sample(struct strait_staged_model *model,
                                      const strait_sample_row *how, int64_t n, int32_t *tokens);
strait_err strait_staged_model_set_seen(struct strait_staged_model *model, int64_t sequence,
                                        const unsigned char *seen);

/* Feeds the next token of sequence 0 and returns the logits of the one after it; they are valid
 * until the next call. */
strait_err strait_staged_model_feed(struct strait_staged_model *model, int32_t token,
                                    const float **logits);
