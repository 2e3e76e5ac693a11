/* trained_model.c - opens a checkpoint for inference, and scores text with it. */
#include "infer/trained_model.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/description.h"

#include <stdio.h>
#include <string.h>

/* The tokenizer.json of the run that the checkpoint belongs to; "" if there is none. */
static strait_err find_tokenizer(const char *checkpoint, char out[STRAIT_PATH_MAX]) {
    STRAIT_TRY(strait_file_path(out, "%s/../../tokenizer.json", checkpoint));
    if (!strait_file_exists(out)) out[0] = '\0';
    return STRAIT_OK;
}

/* A tokenizer that differs from that of the training data would give ids of other words. */
static strait_err open_tokenizer(struct strait_trained_model *t, const char *chosen,
                                 const struct strait_checkpoint *checkpoint) {
    char path[STRAIT_PATH_MAX];
    if (chosen != NULL)
        STRAIT_TRY(strait_file_path(path, "%s", chosen));
    else
        STRAIT_TRY(find_tokenizer(t->path, path));
    if (path[0] == '\0') return STRAIT_OK;
    STRAIT_TRY(strait_tokenizer_open(path, &t->tokenizer));
    STRAIT_TRY(
        strait_describe_check(checkpoint, &t->plan, strait_tokenizer_fingerprint(t->tokenizer)));
    if (strait_tokenizer_vocab(t->tokenizer) > t->plan.shape.vocab)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: the tokenizer has %d tokens, the model %lld", path,
                           (int)strait_tokenizer_vocab(t->tokenizer),
                           (long long)t->plan.shape.vocab);
    return STRAIT_OK;
}

strait_err strait_trained_model_prepare(struct strait_trained_model *t, int64_t n_tokens) {
    const int64_t whole = n_tokens / t->plan.shape.context;
    const int64_t n_sequences = n_tokens == 0 ? 0 : whole > 0 ? whole : 1;
    if (t->stages != NULL && t->n_sequences == n_sequences) return STRAIT_OK;
    strait_staged_model_close(&t->stages); // first: weights must not be in memory twice
    STRAIT_TRY(strait_staged_model_open(&t->plan, t->backend, n_sequences, &t->stages));
    t->n_sequences = n_sequences;
    const strait_err err = strait_staged_model_load(t->stages, t->checkpoint);
    if (err != STRAIT_OK) strait_staged_model_close(&t->stages);
    return err;
}

/* A checkpoint may not know its tokenizer; then the one that was opened counts. */
static void note_fingerprint(struct strait_trained_model *t,
                             const struct strait_checkpoint *checkpoint) {
    const char *print = strait_checkpoint_tokenizer(checkpoint);
    if (print[0] == '\0' && t->tokenizer != NULL)
        print = strait_tokenizer_fingerprint(t->tokenizer);
    (void)snprintf(t->fingerprint, sizeof t->fingerprint, "%s", print);
}

static strait_err open_model(struct strait_trained_model *t, const char *folder,
                             const char *tokenizer, strait_backend_spec backend) {
    STRAIT_TRY(strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST_VALID, &t->checkpoint));
    STRAIT_TRY(strait_file_path(t->path, "%s", strait_checkpoint_path(t->checkpoint)));
    t->step = strait_checkpoint_step(t->checkpoint);
    const char *skipped = strait_checkpoint_skipped(t->checkpoint);
    if (skipped != NULL) (void)snprintf(t->skipped, sizeof t->skipped, "%s", skipped);
    STRAIT_TRY(strait_describe_read(t->checkpoint, &t->plan));
    STRAIT_TRY(open_tokenizer(t, tokenizer, t->checkpoint));
    note_fingerprint(t, t->checkpoint);
    /* A checkpoint is f32; the device decides the precision to compute in. */
    t->plan.shape.precision = backend.precision;
    t->plan.codec.precision = backend.precision;
    return strait_backend_open(backend, &t->backend);
}

strait_err strait_trained_model_open(const char *folder, const char *tokenizer,
                                     strait_backend_spec backend, int64_t n_tokens,
                                     struct strait_trained_model **out) {
    struct strait_trained_model *t = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *t, "trained model", (void **)&t));
    t->n_sequences = -1;
    strait_err err = open_model(t, folder, tokenizer, backend);
    if (err == STRAIT_OK && n_tokens != STRAIT_TRAINED_MODEL_LATER)
        err = strait_trained_model_prepare(t, n_tokens);
    if (err != STRAIT_OK) {
        strait_trained_model_close(&t);
        return err;
    }
    *out = t;
    return STRAIT_OK;
}

void strait_trained_model_close(struct strait_trained_model **trained) {
    struct strait_trained_model *t = *trained;
    if (t == NULL) return;
    strait_staged_model_close(&t->stages);
    strait_tokenizer_close(&t->tokenizer);
    strait_backend_close(&t->backend);
    strait_checkpoint_close(&t->checkpoint);
    strait_alloc_free(t);
    *trained = NULL;
}

/* Buffers for one microbatch of ids and losses, on the host and on the device. */
struct batch {
    int32_t *tokens, *targets, *window;
    float *losses;
    struct strait_slab slab; // owns d_tokens and d_targets
    strait_tensor d_tokens, d_targets;
};

static strait_err batch_init(struct batch *batch, struct strait_trained_model *t) {
    const int64_t context = t->plan.shape.context;
    const size_t n = (size_t)(t->n_sequences * context);
    STRAIT_TRY(strait_alloc(n, sizeof *batch->tokens, "ids", (void **)&batch->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof *batch->targets, "ids", (void **)&batch->targets));
    STRAIT_TRY(
        strait_alloc((size_t)context + 1, sizeof *batch->window, "ids", (void **)&batch->window));
    STRAIT_TRY(strait_alloc(n, sizeof *batch->losses, "losses", (void **)&batch->losses));
    STRAIT_TRY(strait_slab_add(&batch->slab, STRAIT_I32, (int64_t)n, 1, &batch->d_tokens));
    STRAIT_TRY(strait_slab_add(&batch->slab, STRAIT_I32, (int64_t)n, 1, &batch->d_targets));
    return strait_slab_commit(&batch->slab, t->backend);
}

/* Also after a failed init. */
static void batch_fini(struct batch *batch) {
    strait_slab_fini(&batch->slab);
    strait_alloc_free(batch->tokens);
    strait_alloc_free(batch->targets);
    strait_alloc_free(batch->window);
    strait_alloc_free(batch->losses);
}

/* The text to score. */
struct text {
    strait_trained_model_fetch fetch;
    void *user;
    int64_t n_tokens;
};

/* Fetches n + 1 ids from `first` on into the window. */
static strait_err fill_window(struct batch *batch, const struct text *text, int64_t first,
                              int64_t n, int64_t vocab) {
    STRAIT_TRY(text->fetch(text->user, first, n + 1, batch->window));
    for (int64_t i = 0; i <= n; i++)
        if (batch->window[i] < 0 || batch->window[i] >= vocab)
            return STRAIT_FAIL(
                STRAIT_EDATA, "token %d at position %lld is outside the model's vocabulary of %lld",
                (int)batch->window[i], (long long)(first + i), (long long)vocab);
    return STRAIT_OK;
}

/* Fills row `row` of the batch with the window that starts at `first`, and adds the number of its
 * tokens that have a target to *n_scored. Past the end of the text rows are filled with token 0 and
 * no target, so that every batch has the same shape. */
static strait_err fill_row(struct batch *batch, const struct text *text, const strait_shape *shape,
                           int64_t row, int64_t first, int64_t *n_scored) {
    const int64_t context = shape->context, left = text->n_tokens - 1 - first;
    const int64_t n = left < 0 ? 0 : left < context ? left : context;
    if (n > 0) STRAIT_TRY(fill_window(batch, text, first, n, shape->vocab));
    for (int64_t i = 0; i < context; i++) {
        batch->tokens[row * context + i] = i < n ? batch->window[i] : 0;
        batch->targets[row * context + i] = i < n ? batch->window[i + 1] : -1;
    }
    *n_scored += n;
    return STRAIT_OK;
}

/* Padding has no target and a loss of 0, so all rows can be added up. */
static strait_err score_batch(struct strait_trained_model *t, struct batch *batch,
                              double *loss_sum) {
    const struct strait_backend_ops *ops = t->backend->ops;
    struct strait_stream *stream = strait_staged_model_stream(t->stages);
    const size_t bytes = strait_tensor_bytes(batch->d_tokens);
    strait_tensor losses;
    STRAIT_TRY(ops->upload(stream, batch->d_tokens.data, batch->tokens, bytes));
    STRAIT_TRY(ops->upload(stream, batch->d_targets.data, batch->targets, bytes));
    STRAIT_TRY(strait_staged_model_score(t->stages, batch->d_tokens, batch->d_targets, &losses));
    STRAIT_TRY(ops->download(stream, batch->losses, losses.data, strait_tensor_bytes(losses)));
    STRAIT_TRY(ops->wait(stream));
    for (int64_t i = 0; i < losses.rows; i++)
        *loss_sum += (double)batch->losses[i]; // 0 where there is no target
    return STRAIT_OK;
}

/* The first token has nothing before it, so n tokens give n - 1 losses. */
strait_err strait_trained_model_evaluate(struct strait_trained_model *t,
                                         strait_trained_model_fetch fetch, void *user,
                                         int64_t n_tokens, strait_trained_model_progress progress,
                                         strait_model_score *out) {
    if (n_tokens < 2)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "the text has %lld tokens; at least 2 are needed to score one",
                           (long long)n_tokens);
    const int64_t rows = t->n_sequences;
    const int64_t context = t->plan.shape.context;
    strait_model_score score = {0};
    const struct text text = {.fetch = fetch, .user = user, .n_tokens = n_tokens};
    struct batch batch = {0};
    strait_err err = batch_init(&batch, t);
    for (int64_t at = 0; err == STRAIT_OK && at < n_tokens - 1; at += rows * context) {
        for (int64_t row = 0; err == STRAIT_OK && row < rows; row++)
            err = fill_row(&batch, &text, &t->plan.shape, row, at + row * context, &score.n_tokens);
        if (err == STRAIT_OK) err = score_batch(t, &batch, &score.loss_sum);
        if (err == STRAIT_OK && progress.report != NULL)
            progress.report(progress.arg, score.n_tokens);
    }
    batch_fini(&batch);
    if (err == STRAIT_OK) *out = score;
    return err;
}
