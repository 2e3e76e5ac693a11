/* model.h - use a trained model: compute its loss on text or tokens, and sample text from it.
 *
 *     struct strait_model *model = NULL;
 *     strait_model_open("runs/mine", NULL, &model);
 *     strait_model_generate(model, &(strait_generate_params){.prompt = "Once", .n_tokens = 100,
 *                           .temperature = 0.8, .top_p = 1.0, .seed = 1, .on_text = print});
 *     strait_model_close(&model);
 *
 * The model computes what its pipeline computed, codecs between the stages included, in this
 * process. One thread at a time uses a model. */
#pragma once

#include <strait/error.h>
#include <strait/text.h>
#include <strait/tokenizer.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_model;

/* Everything may be zero. */
typedef struct strait_model_params {
    const char *tokenizer; // path of a tokenizer.json; NULL: the copy in the run's folder
    int n_threads;         // of the CPU; 0: one per core
    const char *device;    // "cpu", "cuda", or "auto": cuda where there is one; NULL: cpu
    const char *precision; // of activations: "fp32", "bf16" or "auto"; NULL: auto, the device's own
} strait_model_params;

/* Opens a trained model. `folder` is a run, whose newest undamaged checkpoint is used, or a single
 * checkpoint, which must be undamaged. A run without a tokenizer opens too, but only for tokens.
 * STRAIT_EDATA: there is no such checkpoint, or the tokenizer is not the one that the model was
 * trained with. STRAIT_ECONFIG: there is no such device or precision; STRAIT_ENOTSUP: this machine
 * has no such device. `params` may be NULL. */
STRAIT_API strait_err strait_model_open(const char *folder, const strait_model_params *params,
                                        struct strait_model **out);

/* Releases the model. Sets *model to NULL; accepts NULL in it. */
STRAIT_API void strait_model_close(struct strait_model **model);

/* Pointers are borrowed until close. */
typedef struct strait_model_info {
    const char *checkpoint; // the folder of the checkpoint in use
    const char *note;       // why newer checkpoints were skipped, for people; NULL: none were
    int64_t step;           // steps trained
    int64_t vocab, context;
    const char *device; // what it computes on, for people: "cpu: 2 threads, avx512"
    const struct strait_tokenizer *tokenizer; // NULL: there is none
} strait_model_info;

/* Describes an open model. The pointers in *out are borrowed until close. */
STRAIT_API void strait_model_describe(const struct strait_model *model, strait_model_info *out);

/* Called while tokens are scored, from the calling thread. */
typedef void (*strait_model_progress)(void *user, int64_t n_done, int64_t n_total);

typedef struct strait_model_score {
    double loss_sum;  // cross entropy in nats, over all predicted tokens
    int64_t n_tokens; // predicted: all but the first of each window
} strait_model_score;

/* Compute the loss over windows of the model's context, each on its own. The text's documents are
 * joined by end-of-text tokens; `path` is a corpus (corpus.h). `progress` may be NULL.
 * STRAIT_EDATA: there are fewer than two tokens, or the corpus was written with another tokenizer.
 * STRAIT_ECONFIG: text needs a tokenizer and the model has none. */
STRAIT_API strait_err strait_model_evaluate_text(struct strait_model *model,
                                                 const strait_text_spec *text,
                                                 strait_model_progress progress, void *user,
                                                 strait_model_score *out);
STRAIT_API strait_err strait_model_evaluate_corpus(struct strait_model *model, const char *path,
                                                   strait_model_progress progress, void *user,
                                                   strait_model_score *out);

/* How often the likeliest choice is the right one. */
typedef struct strait_model_accuracy {
    double acc, acc_error;           // by log-likelihood; standard error of the mean
    double acc_norm, acc_norm_error; // by log-likelihood per byte of the choice
    int64_t n_questions;
} strait_model_accuracy;

/* Answers the multiple-choice questions of a JSON Lines file (docs/inference.md) by log-likelihood.
 * `progress` counts choices. STRAIT_EDATA: a line is not a question; the detail has its number.
 * STRAIT_ECONFIG: the model has no tokenizer. */
STRAIT_API strait_err strait_model_evaluate_tasks(struct strait_model *model, const char *path,
                                                  strait_model_progress progress, void *user,
                                                  strait_model_accuracy *out);

/* Why a text ended. */
typedef enum strait_generate_end {
    STRAIT_GENERATE_FULL,    // n_tokens were added
    STRAIT_GENERATE_STOPPED, // by an end of text, or by a stop string
} strait_generate_end;

/* How to sample text. */
typedef struct strait_generate_params {
    const char *prompt; // NULL or empty: start after an end of text
    int64_t n_tokens;   // to add, at most
    double temperature; // 0: always the most likely token
    int64_t top_k;      // sample from the k most likely tokens; 0: from all
    double top_p;       // sample from the most likely tokens that together reach it; 1: from all
    int64_t seed;       // the same seed gives the same text
    int ignores_end;    // go on after an end-of-text token
    /* Receives the text of every token, first those of the prompt; n may be 0 while a character is
     * incomplete. The text is valid during the call. An error stops the generation. */
    strait_err (*on_text)(void *user, const char *text, size_t n, int is_prompt);
    void *user;
    double min_p;              // only tokens at least this likely, relative to the most likely one
    double repetition_penalty; // divides positive logits of tokens that occurred and multiplies
                               // negative ones; 0 and 1: none
    const char *const *stops;  // text that ends the generation, and is not delivered
    int n_stops;
    /* Called once after the last text, with the number of tokens that were added. May be NULL. */
    strait_err (*on_end)(void *user, strait_generate_end why, int64_t n_tokens);
} strait_generate_params;

/* Samples text until n_tokens are added, or the end of text or a stop string is sampled. When the
 * context is full, its older half is dropped. STRAIT_ECONFIG: a parameter is out of its bounds, or
 * the model has no tokenizer. */
STRAIT_API strait_err strait_model_generate(struct strait_model *model,
                                            const strait_generate_params *params);

/* The same for n prompts, n_at_once at a time: more at a time take more memory and less time. Each
 * text is the one that the prompt would get alone. Callbacks of different prompts alternate. */
STRAIT_API strait_err strait_model_generate_batch(struct strait_model *model,
                                                  const strait_generate_params *params, int n,
                                                  int n_at_once);

#ifdef __cplusplus
}
#endif
