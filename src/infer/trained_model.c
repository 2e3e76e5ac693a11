/* trained_model.c - opens a checkpoint for inference, and scores text with it. */
#include "infer/trained_model.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/description.h"

#include <stdio.h>
#include <string.h>

enum {
    DEVICE_LOGITS = 256 << 20 // bytes of logits that a device computes at a time
};

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

strait_staged_use strait_trained_model_scoring(int64_t n_tokens, int64_t seq_len) {
    const int64_t whole = n_tokens / seq_len;
    return (strait_staged_use){.n_sequences = whole > 0 ? whole : 1, .seq_len = seq_len};
}

static void close_stages(struct strait_trained_model *t) {
    strait_slab_fini(&t->ids);
    strait_staged_model_close(&t->stages);
}

/* Device memory for the ids of a batch to score. */
static strait_err plan_ids(struct strait_trained_model *t) {
    const int64_t n = t->use.n_sequences * t->use.seq_len;
    if (t->use.n_rows > 0) return STRAIT_OK;
    STRAIT_TRY(strait_slab_add(&t->ids, STRAIT_I32, n, 1, &t->d_tokens));
    STRAIT_TRY(strait_slab_add(&t->ids, STRAIT_I32, n, 1, &t->d_targets));
    return strait_slab_commit(&t->ids, t->backend);
}

strait_err strait_trained_model_prepare(struct strait_trained_model *t, strait_staged_use use) {
    if (t->stages != NULL && memcmp(&t->use, &use, sizeof use) == 0) return STRAIT_OK;
    close_stages(t); // first: weights must not be in memory twice
    STRAIT_TRY(strait_staged_model_open(&t->plan, t->backend, use, &t->stages));
    t->use = use;
    strait_err err = strait_staged_model_load(t->stages, t->checkpoint);
    if (err == STRAIT_OK) err = plan_ids(t);
    if (err != STRAIT_OK) close_stages(t);
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
    STRAIT_TRY(strait_backend_open(backend, &t->backend));
    if (!t->backend->ops->is_host) t->plan.logit_bytes = DEVICE_LOGITS;
    return STRAIT_OK;
}

static strait_err prepare_tokens(struct strait_trained_model *t, int64_t n_tokens) {
    if (n_tokens == STRAIT_TRAINED_MODEL_LATER) return STRAIT_OK;
    if (n_tokens == 0)
        return strait_trained_model_prepare(t, (strait_staged_use){.n_sequences = 1, .n_rows = 1});
    return strait_trained_model_prepare(
        t, strait_trained_model_scoring(n_tokens, t->plan.shape.context));
}

strait_err strait_trained_model_open(const char *folder, const char *tokenizer,
                                     strait_backend_spec backend, int64_t n_tokens,
                                     struct strait_trained_model **out) {
    struct strait_trained_model *t = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *t, "trained model", (void **)&t));
    strait_err err = open_model(t, folder, tokenizer, backend);
    if (err == STRAIT_OK) err = prepare_tokens(t, n_tokens);
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
    close_stages(t);
    strait_tokenizer_close(&t->tokenizer);
    strait_backend_close(&t->backend);
    strait_checkpoint_close(&t->checkpoint);
    strait_alloc_free(t);
    *trained = NULL;
}

/* Buffers for one microbatch of ids and losses. */
struct batch {
    int32_t *tokens, *targets, *window;
    float *losses;
};

static strait_err batch_init(struct batch *batch, const struct strait_trained_model *t) {
    const size_t n = (size_t)(t->use.n_sequences * t->use.seq_len);
    STRAIT_TRY(strait_alloc(n, sizeof *batch->tokens, "ids", (void **)&batch->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof *batch->targets, "ids", (void **)&batch->targets));
    STRAIT_TRY(strait_alloc((size_t)t->use.seq_len + 1, sizeof *batch->window, "ids",
                            (void **)&batch->window));
    return strait_alloc(n, sizeof *batch->losses, "losses", (void **)&batch->losses);
}

/* Also after a failed init. */
static void batch_fini(struct batch *batch) {
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

strait_err strait_trained_model_score(struct strait_trained_model *t, const int32_t *tokens,
                                      const int32_t *targets, float *losses) {
    const struct strait_backend_ops *ops = t->backend->ops;
    struct strait_stream *stream = strait_staged_model_stream(t->stages);
    const size_t bytes = strait_tensor_bytes(t->d_tokens);
    strait_tensor computed;
    STRAIT_TRY(ops->upload(stream, t->d_tokens.data, tokens, bytes));
    STRAIT_TRY(ops->upload(stream, t->d_targets.data, targets, bytes));
    STRAIT_TRY(strait_staged_model_score(t->stages, t->d_tokens, t->d_targets, &computed));
    STRAIT_TRY(ops->download(stream, losses, computed.data, strait_tensor_bytes(computed)));
    return ops->wait(stream);
}

/* Padding has no target and a loss of 0, so all rows can be added up. */
static strait_err score_batch(struct strait_trained_model *t, struct batch *batch,
                              double *loss_sum) {
    STRAIT_TRY(strait_trained_model_score(t, batch->tokens, batch->targets, batch->losses));
    for (int64_t i = 0; i < t->use.n_sequences * t->use.seq_len; i++)
        *loss_sum += (double)batch->losses[i];
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
    const int64_t rows = t->use.n_sequences, context = t->use.seq_len;
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
