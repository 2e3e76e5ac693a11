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
    struct strait_staged_model *chain;    // the whole model, cut as it was trained
    struct strait_tokenizer *tokenizer;   // NULL where the folder has none
    strait_run_plan plan;                 // of which shape, cut and codec are known
    int64_t n_sequences;                  // scored at a time; 0: it generates; -1: not prepared
    int64_t step;
    char fingerprint[80]; // of the tokenizer that it was trained with; empty: unknown
    char path[4096];      // of the checkpoint
    char skipped[512];    // why newer ones were passed over, for the user; empty: none were
};

enum {
    STRAIT_TRAINED_MODEL_LATER = -1
};

/* `folder` is a run's, whose newest whole checkpoint is taken, or one checkpoint's, which must be
 * whole. The tokenizer is the run folder's copy, or `tokenizer` where that is not NULL; one of
 * another fingerprint than the model was trained with is refused. About n_tokens, in whole
 * contexts, are scored at a time; with 0 the model generates instead; STRAIT_TRAINED_MODEL_LATER
 * leaves that to strait_trained_model_prepare. */
strait_err strait_trained_model_open(const char *folder, const char *tokenizer,
                                     strait_backend_spec backend, int64_t n_tokens,
                                     struct strait_trained_model **out);
/* Allocates the stages for another use, as open does with n_tokens, and loads the weights; nothing
 * if they are prepared for it. */
strait_err strait_trained_model_prepare(struct strait_trained_model *trained, int64_t n_tokens);

void strait_trained_model_close(struct strait_trained_model **trained); // accepts NULL

/* Gives tokens [first, first + n) of something long. */
typedef strait_err (*strait_trained_model_fetch)(void *user, int64_t first, int64_t n,
                                                 int32_t *out);

/* Where progress is reported: the number of tokens scored so far. `report` may be NULL. */
typedef struct strait_trained_model_progress {
    void (*report)(void *arg, int64_t n);
    void *arg;
} strait_trained_model_progress;

/* Scores n_tokens tokens in windows of the model's context, each on its own. The model is
 * prepared to score. */
strait_err strait_trained_model_evaluate(struct strait_trained_model *trained,
                                         strait_trained_model_fetch fetch, void *user,
                                         int64_t n_tokens, strait_trained_model_progress progress,
                                         strait_model_score *out);
