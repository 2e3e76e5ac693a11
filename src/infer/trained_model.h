/* trained_model.h - a trained model from its folder: weights, shape, tokenizer. Read-only.
 *
 * It is prepared either to score tokens or to generate them: the two need different buffers. */
#pragma once

#include <strait/model.h>

#include "backend/backend.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/staged_model.h"

struct strait_trained_model {
    struct strait_backend *backend;
    struct strait_checkpoint *checkpoint; // its files stay mapped: prepare reads them again
    struct strait_staged_model
        *stages; // the whole model, cut as it was trained; NULL: not prepared
    struct strait_tokenizer *tokenizer; // NULL where the folder has none
    strait_run_plan plan;               // only shape, stage_layers and codec are set
    strait_staged_use use;              // what `stages` is prepared for
    struct strait_slab ids;             // owns d_tokens and d_targets, of a batch to score
    strait_tensor d_tokens, d_targets;
    int64_t step;         // of the checkpoint
    char fingerprint[80]; // of the tokenizer that it was trained with; empty: unknown
    char path[4096];      // of the checkpoint
    char
        skipped[512]; // why newer checkpoints were not usable, for the user; empty: there were none
};

enum {
    STRAIT_TRAINED_MODEL_LATER = -1 // n_tokens of open: prepare nothing yet
};

/* Opens a run's folder, of which it takes the newest complete checkpoint, or the folder of one
 * checkpoint, which must be complete. The tokenizer is the run folder's copy, or `tokenizer` unless
 * that is NULL; STRAIT_EDATA if the model was trained with another one. The model scores about
 * n_tokens at a time, in whole contexts; with 0 it generates one sequence, fed token by token; with
 * STRAIT_TRAINED_MODEL_LATER the caller must call prepare first. The caller closes it. One thread
 * uses it. */
strait_err strait_trained_model_open(const char *folder, const char *tokenizer,
                                     strait_backend_spec backend, int64_t n_tokens,
                                     struct strait_trained_model **out);
/* Allocates the stages for another use and loads the weights. Does nothing if they are prepared for
 * it already. */
strait_err strait_trained_model_prepare(struct strait_trained_model *trained,
                                        strait_staged_use use);
/* How to score about n_tokens at a time, in sequences of seq_len tokens. */
strait_staged_use strait_trained_model_scoring(int64_t n_tokens, int64_t seq_len);

void strait_trained_model_close(struct strait_trained_model **trained); // accepts NULL

/* Scores one batch: tokens and targets [n_sequences seq_len], a target of -1 has no loss. The
 * losses are 0 there. The model must be prepared to score. */
strait_err strait_trained_model_score(struct strait_trained_model *trained, const int32_t *tokens,
                                      const int32_t *targets, float *losses);

/* Copies tokens [first, first + n) of the text to score to `out`. */
typedef strait_err (*strait_trained_model_fetch)(void *user, int64_t first, int64_t n,
                                                 int32_t *out);

/* Where progress is reported: the number of tokens scored so far. `report` may be NULL. */
typedef struct strait_trained_model_progress {
    void (*report)(void *arg, int64_t n);
    void *arg;
} strait_trained_model_progress;

/* Scores n_tokens tokens in windows of the model's context; no window sees another. The model must
 * be prepared to score. STRAIT_EDATA for fewer than 2 tokens, or a token outside the vocabulary. */
strait_err strait_trained_model_evaluate(struct strait_trained_model *trained,
                                         strait_trained_model_fetch fetch, void *user,
                                         int64_t n_tokens, strait_trained_model_progress progress,
                                         strait_model_score *out);
