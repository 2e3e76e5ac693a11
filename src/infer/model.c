/* model.c - the public model of strait/model.h: opening, describing and evaluating. */
#include "infer/model.h"

#include "base/alloc.h"
#include "data/corpus.h"
#include "data/text/text.h"
#include "data/tokenizer/encoder.h"
#include "infer/score_documents.h"

#include <stdio.h>
#include <string.h>

enum {
    SCORED_TOKENS = 2048, // per batch, in whole contexts: enough to occupy the kernels of a CPU
    DEVICE_TOKENS = 32768 // and of a GPU
};

/* Whether this machine has a device of this kind. One that is there and fails is an error:
 * computing elsewhere without a word would only seem slow. */
static strait_err find_device(const char *name, strait_dtype precision, int *is_there) {
    struct strait_backend *backend = NULL;
    const strait_err err = strait_backend_open(
        (strait_backend_spec){.name = name, .precision = precision}, &backend);
    strait_backend_close(&backend);
    *is_there = err == STRAIT_OK;
    return err == STRAIT_ENOTSUP || err == STRAIT_ECONFIG ? STRAIT_OK : err;
}

static strait_err choose_precision(const char *name, const char *device, strait_dtype *out) {
    const char *why = NULL;
    if (name == NULL || strcmp(name, "auto") == 0)
        *out = strait_backend_precision(device, 0, &why);
    else if (strcmp(name, "fp32") == 0)
        *out = STRAIT_F32;
    else if (strcmp(name, "bf16") == 0)
        *out = STRAIT_BF16;
    else
        return STRAIT_FAIL(STRAIT_ECONFIG, "precision '%s': expected auto, fp32 or bf16", name);
    return STRAIT_OK;
}

static strait_err choose_backend(const strait_model_params *params, strait_backend_spec *out) {
    const char *name = params->device != NULL ? params->device : "cpu";
    const int is_auto = strcmp(name, "auto") == 0;
    int is_there = 1;
    strait_dtype precision = STRAIT_F32;
    if (is_auto) name = "cuda";
    STRAIT_TRY(strait_backend_check_name(name));
    STRAIT_TRY(choose_precision(params->precision, name, &precision));
    if (is_auto) STRAIT_TRY(find_device(name, precision, &is_there));
    if (!is_there) {
        name = "cpu";
        STRAIT_TRY(choose_precision(params->precision, name, &precision));
    }
    *out = (strait_backend_spec){
        .name = name, .n_threads = params->n_threads, .precision = precision};
    return STRAIT_OK;
}

/* Buffers are prepared on first use, because scoring and generating need different ones. */
strait_err strait_model_open(const char *folder, const strait_model_params *params,
                             struct strait_model **out) {
    static const strait_model_params none = {0};
    if (params == NULL) params = &none;
    strait_backend_spec backend = {0};
    struct strait_model *model = NULL;
    STRAIT_TRY(choose_backend(params, &backend));
    STRAIT_TRY(strait_alloc(1, sizeof *model, "model", (void **)&model));
    const strait_err err = strait_trained_model_open(folder, params->tokenizer, backend,
                                                     STRAIT_TRAINED_MODEL_LATER, &model->trained);
    if (err != STRAIT_OK) {
        strait_model_close(&model);
        return err;
    }
    const struct strait_backend *be = model->trained->backend;
    (void)snprintf(model->device, sizeof model->device, "%s: %s", be->ops->name,
                   be->ops->describe(be));
    *out = model;
    return STRAIT_OK;
}

void strait_model_close(struct strait_model **model) {
    if (*model == NULL) return;
    strait_trained_model_close(&(*model)->trained);
    strait_alloc_free(*model);
    *model = NULL;
}

void strait_model_describe(const struct strait_model *model, strait_model_info *out) {
    const struct strait_trained_model *t = model->trained;
    *out = (strait_model_info){.checkpoint = t->path,
                               .note = t->skipped[0] != '\0' ? t->skipped : NULL,
                               .step = t->step,
                               .vocab = t->plan.shape.vocab,
                               .context = t->plan.shape.context,
                               .device = model->device,
                               .tokenizer = t->tokenizer};
}

strait_err strait_model_need_tokenizer(const struct strait_model *model) {
    if (model->trained->tokenizer != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "%s has no tokenizer.json beside it: name a tokenizer",
                       model->trained->path);
}

/* Where progress goes, with the total that the evaluation itself does not know. */
struct progress_sink {
    strait_model_progress progress;
    void *user;
    int64_t n_total;
};

static void report(void *arg, int64_t n) {
    const struct progress_sink *sink = arg;
    if (sink->progress != NULL) sink->progress(sink->user, n, sink->n_total);
}

static strait_err prepare_to_score(struct strait_model *model) {
    struct strait_trained_model *t = model->trained;
    const int64_t n = t->backend->ops->is_host ? SCORED_TOKENS : DEVICE_TOKENS;
    return strait_trained_model_prepare(t, strait_trained_model_scoring(n, t->plan.shape.context));
}

/* The model is prepared here, on first use, because generating needs other buffers. */
static strait_err evaluate(struct strait_model *model, strait_trained_model_fetch fetch, void *from,
                           struct progress_sink sink, strait_model_score *out) {
    const strait_trained_model_progress progress = {report, &sink};
    STRAIT_TRY(prepare_to_score(model));
    return strait_trained_model_evaluate(model->trained, fetch, from, sink.n_total, progress, out);
}

/* The first token of a text has nothing to be predicted from. */
static strait_err check_length(const char *path, int64_t n_tokens) {
    if (n_tokens >= 2) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: has %lld tokens; scoring needs at least 2", path,
                       (long long)n_tokens);
}

/* The ids of all documents, gathered before any is scored: windows cross documents. */
struct gathered {
    struct strait_encoder *encoder;
    int32_t end; // the end-of-text token between two documents; -1: none
    strait_ids ids;
};

/* Appends one document, after an end of text unless it is the first. */
static strait_err gather(void *user, const void *text, size_t n) {
    struct gathered *g = user;
    const int32_t *ids = NULL;
    size_t n_ids = 0;
    if (g->ids.n > 0 && g->end >= 0) STRAIT_TRY(strait_ids_append(&g->ids, &g->end, 1));
    STRAIT_TRY(strait_encoder_encode(g->encoder, text, n, 0, &ids, &n_ids));
    return strait_ids_append(&g->ids, ids, n_ids);
}

static strait_err fetch_ids(void *user, int64_t first, int64_t n, int32_t *out) {
    memcpy(out, (const int32_t *)user + first, (size_t)n * sizeof *out);
    return STRAIT_OK;
}

strait_err strait_model_evaluate_text(struct strait_model *model, const strait_text_spec *text,
                                      strait_model_progress progress, void *user,
                                      strait_model_score *out) {
    STRAIT_TRY(strait_model_need_tokenizer(model));
    const struct strait_tokenizer *tokenizer = model->trained->tokenizer;
    struct gathered g = {.end = strait_tokenizer_end(tokenizer)};
    strait_err err = strait_encoder_open(tokenizer, &g.encoder);
    if (err == STRAIT_OK) err = strait_text_visit(text, gather, &g);
    const int64_t n = (int64_t)g.ids.n;
    if (err == STRAIT_OK) err = check_length(text->n_paths > 0 ? text->paths[0] : "text", n);
    if (err == STRAIT_OK)
        err = evaluate(model, fetch_ids, g.ids.data, (struct progress_sink){progress, user, n},
                       out);
    strait_encoder_close(&g.encoder);
    strait_alloc_free(g.ids.data);
    return err;
}

/* Shards are read as they are needed: a corpus may be larger than memory. */
static strait_err fetch_corpus(void *user, int64_t first, int64_t n, int32_t *out) {
    return strait_corpus_read(user, first, n, out);
}

/* Prompts are not targets, and windows must not cross documents. */
static strait_err evaluate_documents(struct strait_model *model, const struct strait_corpus *corpus,
                                     struct progress_sink sink, strait_model_score *out) {
    const strait_trained_model_progress progress = {report, &sink};
    STRAIT_TRY(prepare_to_score(model));
    return strait_score_documents(model->trained, corpus, progress, out);
}

strait_err strait_model_evaluate_corpus(struct strait_model *model, const char *path,
                                        strait_model_progress progress, void *user,
                                        strait_model_score *out) {
    const struct strait_trained_model *t = model->trained;
    struct strait_corpus *corpus = NULL;
    STRAIT_TRY(strait_corpus_open(path, &corpus));
    const int64_t n = corpus->n_tokens;
    /* A corpus of another tokenizer would be scored without an error, but its loss means nothing.
     */
    strait_err err = strait_corpus_expect(corpus, t->plan.shape.vocab,
                                          t->fingerprint[0] != '\0' ? t->fingerprint : NULL);
    if (err == STRAIT_OK) err = check_length(path, n);
    const struct progress_sink sink = {progress, user, n};
    if (err == STRAIT_OK && corpus->n_documents > 0)
        err = evaluate_documents(model, corpus, sink, out);
    else if (err == STRAIT_OK)
        err = evaluate(model, fetch_corpus, corpus, sink, out);
    strait_corpus_close(&corpus);
    return err;
}
