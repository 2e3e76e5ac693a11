#include "pipeline/trained.h"

#include "base/alloc.h"
#include "base/file.h"
#include "pipeline/snapshot.h"

#include <string.h>

/* The tokenizer.json beside the checkpoints, for a run's folder or one checkpoint's. */
static strait_err find_tokenizer(const char *checkpoint, char out[STRAIT_PATH_MAX]) {
    STRAIT_TRY(strait_file_path(out, "%s/../../tokenizer.json", checkpoint));
    if (!strait_file_exists(out)) out[0] = '\0';
    return STRAIT_OK;
}

static strait_err open_tokenizer(struct strait_trained *t, const char *asked,
                                 const struct strait_checkpoint *checkpoint) {
    char path[STRAIT_PATH_MAX];
    if (asked != NULL)
        STRAIT_TRY(strait_file_path(path, "%s", asked));
    else
        STRAIT_TRY(find_tokenizer(t->path, path));
    if (path[0] == '\0') return STRAIT_OK;
    STRAIT_TRY(strait_tokenizer_open(path, &t->tokenizer));
    STRAIT_TRY(
        strait_snapshot_check(checkpoint, &t->shape, strait_tokenizer_fingerprint(t->tokenizer)));
    if (strait_tokenizer_vocab(t->tokenizer) > t->shape.vocab)
        return STRAIT_FAIL(STRAIT_EDATA, "%s has %d tokens, more than the model's %lld", path,
                           (int)strait_tokenizer_vocab(t->tokenizer), (long long)t->shape.vocab);
    return STRAIT_OK;
}

static strait_err open_stage(struct strait_trained *t, strait_backend_spec backend,
                             int64_t n_tokens, struct strait_checkpoint *checkpoint) {
    const int64_t n_sequences = n_tokens / t->shape.context;
    STRAIT_TRY(strait_backend_open(backend, &t->backend));
    const strait_stage_spec spec = {.shape = t->shape,
                                    .part = {0, t->shape.layers},
                                    .n_sequences = n_sequences > 0 ? n_sequences : 1,
                                    .seq_len = t->shape.context,
                                    .n_slots = 1,
                                    .recomputes = 1};
    STRAIT_TRY(strait_stage_open(&spec, t->backend, &t->stage));
    return strait_snapshot_read_model(checkpoint, t->stage);
}

strait_err strait_trained_open(const char *folder, const char *tokenizer,
                               strait_backend_spec backend, int64_t n_tokens,
                               struct strait_trained **out) {
    struct strait_trained *t = NULL;
    struct strait_checkpoint *checkpoint = NULL;
    strait_err err;
    STRAIT_TRY(strait_alloc(1, sizeof *t, "trained model", (void **)&t));
    STRAIT_TRY_GOTO(err, fail,
                    strait_checkpoint_open(folder, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    STRAIT_TRY_GOTO(err, fail, strait_file_path(t->path, "%s", strait_checkpoint_path(checkpoint)));
    t->step = strait_checkpoint_step(checkpoint);
    STRAIT_TRY_GOTO(err, fail, strait_snapshot_shape_of(checkpoint, &t->shape));
    STRAIT_TRY_GOTO(err, fail, open_tokenizer(t, tokenizer, checkpoint));
    STRAIT_TRY_GOTO(err, fail, open_stage(t, backend, n_tokens, checkpoint));
    strait_checkpoint_close(&checkpoint);
    *out = t;
    return STRAIT_OK;
fail:
    strait_checkpoint_close(&checkpoint);
    strait_trained_close(&t);
    return err;
}

void strait_trained_close(struct strait_trained **trained) {
    struct strait_trained *t = *trained;
    if (t == NULL) return;
    strait_stage_close(&t->stage);
    strait_tokenizer_close(&t->tokenizer);
    strait_backend_close(&t->backend);
    strait_alloc_free(t);
    *trained = NULL;
}

/* Room for one microbatch of ids and losses, on the host and on the device. */
struct desk {
    int32_t *tokens, *targets, *window;
    float *losses;
    struct strait_slab room;
    strait_tensor d_tokens, d_targets;
};

static strait_err desk_init(struct desk *desk, struct strait_trained *t) {
    const strait_stage_spec *spec = strait_stage_get_spec(t->stage);
    const size_t n = (size_t)(spec->n_sequences * spec->seq_len);
    STRAIT_TRY(strait_alloc(n, sizeof *desk->tokens, "ids", (void **)&desk->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof *desk->targets, "ids", (void **)&desk->targets));
    STRAIT_TRY(strait_alloc((size_t)spec->seq_len + 1, sizeof *desk->window, "ids",
                            (void **)&desk->window));
    STRAIT_TRY(strait_alloc(n, sizeof *desk->losses, "losses", (void **)&desk->losses));
    STRAIT_TRY(strait_slab_add(&desk->room, STRAIT_I32, (int64_t)n, 1, &desk->d_tokens));
    STRAIT_TRY(strait_slab_add(&desk->room, STRAIT_I32, (int64_t)n, 1, &desk->d_targets));
    return strait_slab_commit(&desk->room, t->backend);
}

static void desk_fini(struct desk *desk) {
    strait_slab_fini(&desk->room);
    strait_alloc_free(desk->tokens);
    strait_alloc_free(desk->targets);
    strait_alloc_free(desk->window);
    strait_alloc_free(desk->losses);
}

/* Fills row `row` with the window that starts at `first`; what lies past the end has no target. */
static strait_err fill_row(struct desk *desk, const struct strait_trained *t,
                           strait_trained_fetch fetch, void *user, int64_t row, int64_t first,
                           int64_t n_tokens, int64_t *n_scored) {
    const int64_t context = t->shape.context;
    int64_t n = n_tokens - 1 - first;
    n = n < 0 ? 0 : n < context ? n : context;
    if (n > 0) STRAIT_TRY(fetch(user, first, n + 1, desk->window));
    for (int64_t i = 0; i < context; i++) {
        desk->tokens[row * context + i] = i < n ? desk->window[i] : 0;
        desk->targets[row * context + i] = i < n ? desk->window[i + 1] : -1;
    }
    for (int64_t i = 0; n > 0 && i <= n; i++)
        if (desk->window[i] < 0 || desk->window[i] >= t->shape.vocab)
            return STRAIT_FAIL(
                STRAIT_EDATA, "token %d at place %lld is outside the model's vocabulary of %lld",
                (int)desk->window[i], (long long)(first + i), (long long)t->shape.vocab);
    *n_scored += n;
    return STRAIT_OK;
}

static strait_err score_desk(struct strait_trained *t, struct desk *desk, double *loss_sum) {
    const struct strait_backend_ops *ops = t->backend->ops;
    struct strait_stream *stream = strait_stage_stream(t->stage);
    const size_t bytes = strait_tensor_bytes(desk->d_tokens);
    strait_tensor losses;
    STRAIT_TRY(ops->upload(stream, desk->d_tokens.data, desk->tokens, bytes));
    STRAIT_TRY(ops->upload(stream, desk->d_targets.data, desk->targets, bytes));
    STRAIT_TRY(strait_stage_forward(t->stage, 0, desk->d_tokens));
    STRAIT_TRY(strait_stage_loss(t->stage, desk->d_targets, 0.0f, &losses));
    STRAIT_TRY(ops->download(stream, desk->losses, losses.data, strait_tensor_bytes(losses)));
    STRAIT_TRY(ops->wait(stream));
    for (int64_t i = 0; i < losses.rows; i++)
        *loss_sum += (double)desk->losses[i];
    return STRAIT_OK;
}

strait_err strait_trained_evaluate(struct strait_trained *t, strait_trained_fetch fetch, void *user,
                                   int64_t n_tokens, void (*seen)(int64_t n),
                                   strait_trained_score *out) {
    if (n_tokens < 2)
        return STRAIT_FAIL(STRAIT_EDATA, "there are only %lld tokens: at least 2 are needed",
                           (long long)n_tokens);
    const int64_t rows = strait_stage_get_spec(t->stage)->n_sequences;
    const int64_t context = t->shape.context;
    strait_trained_score score = {0};
    struct desk desk = {0};
    strait_err err = desk_init(&desk, t);
    for (int64_t at = 0; err == STRAIT_OK && at < n_tokens - 1; at += rows * context) {
        for (int64_t row = 0; err == STRAIT_OK && row < rows; row++)
            err = fill_row(&desk, t, fetch, user, row, at + row * context, n_tokens,
                           &score.n_tokens);
        if (err == STRAIT_OK) err = score_desk(t, &desk, &score.loss_sum);
        if (err == STRAIT_OK && seen != NULL) seen(score.n_tokens);
    }
    desk_fini(&desk);
    if (err == STRAIT_OK) *out = score;
    return err;
}
