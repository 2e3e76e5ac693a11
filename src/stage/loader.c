#include "stage/loader.h"

#include "backend/slab.h"
#include "base/alloc.h"
#include "data/mixture.h"
#include "data/tokenizer/tokenizer.h"
#include "stage/documents.h"
#include "stage/received_ids.h"

#include <stdio.h>
#include <string.h>

/* Two host buffers, because the device may still copy from one while the next is filled. */
enum {
    N_BUFFERS = 2
};

static const double wasted = 0.7; // used positions below which packing is worth mentioning

struct host_buffer {
    int32_t *tokens, *targets;
    struct strait_event copied; // the last copy from this buffer is done
};

struct strait_loader {
    struct strait_mixture *train; // owned
    struct strait_corpus *valid;  // owned; NULL if the run has no validation
    int is_remote;                // no shards: train and valid are NULL, ids are received
    int64_t remote_windows, received_step;
    strait_received_ids received_train, received_valid;
    int64_t vocab;
    int64_t valid_limit; // tokens of a validation; 0: all
    uint64_t seed;

    strait_run_plan plan;
    strait_sampler valid_sampler;
    struct strait_backend *backend;
    struct strait_slab slots;
    strait_tensor *tokens, *targets; // per slot; memory belongs to `slots`
    struct strait_slot_documents documents;
    struct host_buffer buffers[N_BUFFERS];
    int last_buffer; // index of the buffer used last
};

/* The tokenizer, where the run names one, must be the one that produced the shards: other ids would
 * train without an error, on nonsense. */
static strait_err check_tokenizer(struct strait_loader *loader, const strait_run *run) {
    if (run->data.tokenizer[0] == '\0') return STRAIT_OK;
    struct strait_tokenizer *tokenizer = NULL;
    const strait_err opened = strait_tokenizer_open(run->data.tokenizer, &tokenizer);
    if (opened != STRAIT_OK) strait_err_prefix("data.tokenizer");
    STRAIT_TRY(opened);
    const int64_t vocab = strait_tokenizer_vocab(tokenizer);
    if (loader->vocab == 0) loader->vocab = vocab;
    strait_err err = STRAIT_OK;
    if (vocab > loader->vocab)
        err = STRAIT_FAIL(STRAIT_ECONFIG,
                          "model.vocab is %lld, but %s has %lld tokens: raise it or leave it out",
                          (long long)loader->vocab, run->data.tokenizer, (long long)vocab);
    const char *fingerprint = strait_tokenizer_fingerprint(tokenizer);
    if (err == STRAIT_OK) err = strait_mixture_expect(loader->train, loader->vocab, fingerprint);
    if (err == STRAIT_OK && loader->valid != NULL)
        err = strait_corpus_expect(loader->valid, loader->vocab, fingerprint);
    strait_tokenizer_close(&tokenizer);
    return err;
}

/* Without a tokenizer: training and validation shards must agree with each other. */
static strait_err check_corpora(struct strait_loader *loader) {
    if (loader->vocab == 0) loader->vocab = loader->train->vocab;
    if (loader->vocab == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s does not state its vocabulary: set model.vocab or data.tokenizer",
                           loader->train->name);
    const char *fingerprint = loader->train->tokenizer[0] != '\0' ? loader->train->tokenizer : NULL;
    STRAIT_TRY(strait_mixture_expect(loader->train, loader->vocab, NULL));
    if (loader->valid == NULL) return STRAIT_OK;
    /* The fingerprint is optional in a shard; only two known ones can differ. */
    const int both_known = fingerprint != NULL && loader->valid->tokenizer[0] != '\0';
    return strait_corpus_expect(loader->valid, loader->vocab, both_known ? fingerprint : NULL);
}

/* Errors begin with the option that names the shards, so that the user knows which to change. */
static strait_err open_shards(struct strait_loader *loader, const strait_run *run) {
    strait_err err = strait_mixture_open(run->data.train, run->data.format, &loader->train);
    if (err != STRAIT_OK) strait_err_prefix("data.train");
    STRAIT_TRY(err);
    if (run->data.valid[0] == '\0') return STRAIT_OK;
    if (strait_mixture_has_weights(run->data.valid))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "data.valid: a validation reads everything once, so its sources have no "
                           "weights; list their paths alone");
    err = strait_corpus_open_as(run->data.valid, run->data.format, &loader->valid);
    if (err != STRAIT_OK) strait_err_prefix("data.valid");
    return err;
}

static strait_err open_into(struct strait_loader *loader, const strait_run *run) {
    if (run->data.train[0] == '\0')
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "data.train is not set: name token shards written by \"strait tokenize\"");
    loader->vocab = run->model.vocab; // 0: not set; the checks below fill it in
    loader->seed = (uint64_t)run->train.seed;
    loader->valid_limit = run->data.valid_tokens;
    STRAIT_TRY(open_shards(loader, run));
    /* In this order: model.vocab wins over the tokenizer, which wins over the shards. */
    STRAIT_TRY(check_tokenizer(loader, run));
    return check_corpora(loader);
}

strait_err strait_loader_open(const strait_run *run, struct strait_loader **out) {
    struct strait_loader *loader = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *loader, "loader", (void **)&loader));
    const strait_err err = open_into(loader, run);
    if (err != STRAIT_OK) {
        strait_loader_close(&loader);
        return err;
    }
    *out = loader;
    return STRAIT_OK;
}

strait_err strait_loader_open_remote(int64_t vocab, int64_t valid_windows,
                                     struct strait_loader **out) {
    struct strait_loader *loader = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *loader, "loader", (void **)&loader));
    loader->vocab = vocab;
    loader->is_remote = 1;
    loader->remote_windows = valid_windows;
    loader->received_step = -1; // nothing received yet
    *out = loader;
    return STRAIT_OK;
}

void strait_loader_close(struct strait_loader **loader) {
    struct strait_loader *l = *loader;
    if (l == NULL) return;
    strait_received_ids_fini(&l->received_train);
    strait_received_ids_fini(&l->received_valid);
    strait_loader_release(l);
    strait_mixture_close(&l->train);
    strait_corpus_close(&l->valid);
    strait_alloc_free(l);
    *loader = NULL;
}

void strait_loader_release(struct strait_loader *loader) {
    /* Accepts a loader that was never prepared, or only in part. */
    strait_slab_fini(&loader->slots);
    strait_slot_documents_close(&loader->documents);
    strait_alloc_free(loader->tokens);
    strait_alloc_free(loader->targets);
    loader->tokens = loader->targets = NULL;
    for (int i = 0; i < N_BUFFERS; i++) {
        struct host_buffer *buffer = &loader->buffers[i];
        if (buffer->copied.backend != NULL) loader->backend->ops->event_close(&buffer->copied);
        if (buffer->tokens != NULL)
            loader->backend->ops->release_host(loader->backend, buffer->tokens);
        *buffer = (struct host_buffer){0};
    }
}

strait_err strait_loader_check(const struct strait_loader *loader) {
    if (loader->train != NULL) STRAIT_TRY(strait_mixture_check(loader->train));
    return loader->valid != NULL ? strait_corpus_check(loader->valid) : STRAIT_OK;
}

int64_t strait_loader_vocab(const struct strait_loader *loader) {
    return loader->vocab;
}

const char *strait_loader_tokenizer(const struct strait_loader *loader) {
    return loader->train != NULL ? loader->train->tokenizer : "";
}

/* A remote loader does not know the size of the data. */
int64_t strait_loader_train_tokens(const struct strait_loader *loader) {
    return loader->train != NULL ? loader->train->n_tokens : 0;
}

void strait_loader_describe(const struct strait_loader *loader, char *out, size_t capacity) {
    out[0] = '\0';
    if (loader->train == NULL) return;
    if (loader->train->n_sources == 1 && loader->train->n_documents > 0) {
        const strait_sampler_fit fit = strait_sampler_measure(&loader->train->sources[0].sampler);
        (void)snprintf(out, capacity,
                       "%lld documents, %s %lld sequences; they fill %.0f%% of the positions, "
                       "%lld are cut off at the context%s",
                       (long long)loader->train->n_documents,
                       loader->plan.packs ? "packed into" : "one each in", (long long)fit.n_rows,
                       100.0 * fit.used, (long long)fit.n_cut,
                       !loader->plan.packs && fit.used < wasted ? "; data.pack fills more" : "");
    }
    if (loader->train->n_sources == 1) return;
    for (int i = 0; i < loader->train->n_sources; i++) {
        const strait_mixture_source *source = &loader->train->sources[i];
        const size_t used = strlen(out);
        (void)snprintf(out + used, capacity - used, "%s%.1f%% %s (%.2fM tokens)", i > 0 ? ", " : "",
                       100.0 * (double)source->share / STRAIT_MIXTURE_ROUND, source->corpus->name,
                       (double)source->corpus->n_tokens / 1e6);
    }
}

/* All sequences have the length of the context, so every microbatch has the same size. */
static int64_t microbatch_tokens(const strait_run_plan *plan) {
    return plan->microbatch * plan->shape.context;
}

size_t strait_loader_device_bytes(const strait_run_plan *plan, int n_slots) {
    const size_t each = (size_t)microbatch_tokens(plan) * sizeof(int32_t);
    return (size_t)n_slots * 2 * each; // inputs and targets
}

size_t strait_loader_bytes(const strait_run_plan *plan, int n_slots) {
    /* A host buffer has the size of a slot. */
    return strait_loader_device_bytes(plan, n_slots + N_BUFFERS);
}

strait_err strait_loader_configure(struct strait_loader *loader, const strait_run_plan *plan) {
    loader->plan = *plan;
    if (loader->is_remote) {
        const int64_t n = microbatch_tokens(plan);
        STRAIT_TRY(strait_received_ids_init(&loader->received_train, plan->n_microbatches, n,
                                            loader->vocab));
        STRAIT_TRY(strait_received_ids_init(&loader->received_valid,
                                            strait_loader_valid_batches(loader), n, loader->vocab));
        loader->received_train.has_tags = loader->received_valid.has_tags = plan->packs;
        return STRAIT_OK;
    }
    if (plan->packs) STRAIT_TRY(strait_mixture_pack(loader->train, plan->shape.context));
    STRAIT_TRY(strait_mixture_start(loader->train, plan->shape.context, loader->seed));
    if (loader->valid == NULL) return STRAIT_OK;
    if (plan->packs) STRAIT_TRY(strait_corpus_pack(loader->valid, plan->shape.context));
    return strait_sampler_in_order(loader->valid, plan->shape.context, &loader->valid_sampler);
}

strait_err strait_loader_put(struct strait_loader *loader, int64_t step, int64_t microbatch,
                             const int32_t *tokens, const int32_t *targets) {
    if (step != loader->received_step) strait_received_ids_clear(&loader->received_train);
    loader->received_step = step;
    return strait_received_ids_put(&loader->received_train, microbatch, tokens, targets);
}

strait_err strait_loader_put_valid(struct strait_loader *loader, int64_t batch,
                                   const int32_t *tokens, const int32_t *targets) {
    return strait_received_ids_put(&loader->received_valid, batch, tokens, targets);
}

strait_err strait_loader_prepare(struct strait_loader *loader, struct strait_backend *backend,
                                 int n_slots) {
    const int64_t n = microbatch_tokens(&loader->plan);
    loader->backend = backend;
    if (loader->plan.packs)
        STRAIT_TRY(
            strait_slot_documents_open(&loader->documents, n_slots, n, loader->plan.shape.context));
    STRAIT_TRY(strait_alloc((size_t)n_slots, sizeof *loader->tokens, "token id tensors",
                            (void **)&loader->tokens));
    STRAIT_TRY(strait_alloc((size_t)n_slots, sizeof *loader->targets, "token id tensors",
                            (void **)&loader->targets));
    for (int i = 0; i < N_BUFFERS; i++) {
        struct host_buffer *buffer = &loader->buffers[i];
        STRAIT_TRY(backend->ops->alloc_host(backend, (size_t)(2 * n) * sizeof(int32_t),
                                            (void **)&buffer->tokens));
        buffer->targets = buffer->tokens + n; // one allocation holds both
        STRAIT_TRY(backend->ops->event_open(backend, &buffer->copied));
    }
    for (int i = 0; i < n_slots; i++) {
        STRAIT_TRY(strait_slab_add(&loader->slots, STRAIT_I32, n, 1, &loader->tokens[i]));
        STRAIT_TRY(strait_slab_add(&loader->slots, STRAIT_I32, n, 1, &loader->targets[i]));
    }
    return strait_slab_commit(&loader->slots, backend);
}

/* Returns the next host buffer, after the device has finished copying from it. */
static strait_err next_buffer(struct strait_loader *loader, struct host_buffer **out) {
    int is_reached = 0;
    loader->last_buffer = (loader->last_buffer + 1) % N_BUFFERS;
    *out = &loader->buffers[loader->last_buffer];
    return loader->backend->ops->event_query(&(*out)->copied, 1, &is_reached);
}

/* Queues the copies to the device and marks the point after which the buffer may be refilled. */
static strait_err upload_ids(struct strait_loader *loader, struct strait_stream *stream, int slot,
                             struct host_buffer *buffer) {
    const struct strait_backend_ops *ops = loader->backend->ops;
    const size_t bytes = strait_tensor_bytes(loader->tokens[slot]);
    strait_slot_documents_take(&loader->documents, slot, buffer->tokens);
    STRAIT_TRY(ops->upload(stream, loader->tokens[slot].data, buffer->tokens, bytes));
    STRAIT_TRY(ops->upload(stream, loader->targets[slot].data, buffer->targets, bytes));
    return ops->event_record(stream, &buffer->copied);
}

strait_err strait_loader_draw(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              int32_t *tokens, int32_t *targets) {
    const int64_t rows = loader->plan.microbatch;
    if (!loader->is_remote)
        return strait_mixture_fill(loader->train, step * loader->plan.sequences + microbatch * rows,
                                   rows, tokens, targets);
    if (step != loader->received_step)
        return STRAIT_FAIL(STRAIT_EPROTO, "token ids of step %lld have not been received",
                           (long long)step + 1); // messages count steps from 1
    return strait_received_ids_get(&loader->received_train, microbatch, tokens, targets);
}

strait_err strait_loader_step_targets(const struct strait_loader *loader, int64_t step,
                                      int64_t *out) {
    const int64_t sequences = loader->plan.sequences;
    *out = sequences * loader->plan.shape.context;
    if (loader->is_remote) return strait_received_ids_targets(&loader->received_train, *out, out);
    if (loader->train->n_documents == 0) return STRAIT_OK;
    return strait_mixture_count_targets(loader->train, step * sequences, sequences, out);
}

strait_err strait_loader_load(struct strait_loader *loader, struct strait_stream *stream, int slot,
                              int64_t step, int64_t microbatch) {
    struct host_buffer *buffer = NULL;
    STRAIT_TRY(next_buffer(loader, &buffer));
    STRAIT_TRY(strait_loader_draw(loader, step, microbatch, buffer->tokens, buffer->targets));
    return upload_ids(loader, stream, slot, buffer);
}

int64_t strait_loader_valid_windows(const struct strait_loader *loader) {
    if (loader->is_remote) return loader->remote_windows;
    if (loader->valid == NULL) return 0;
    const int64_t context = loader->plan.shape.context;
    /* Whole sequences only: the limit is rounded up. */
    const int64_t limit = loader->valid_limit > 0 ? (loader->valid_limit + context - 1) / context
                                                  : loader->valid_sampler.n_windows;
    return limit < loader->valid_sampler.n_windows ? limit : loader->valid_sampler.n_windows;
}

int64_t strait_loader_valid_batches(const struct strait_loader *loader) {
    return (strait_loader_valid_windows(loader) + loader->plan.microbatch - 1) /
           loader->plan.microbatch;
}

int64_t strait_loader_valid_tokens(const struct strait_loader *loader) {
    return strait_loader_valid_windows(loader) * loader->plan.shape.context;
}

strait_err strait_loader_valid_targets(const struct strait_loader *loader, int64_t *out) {
    *out = strait_loader_valid_tokens(loader);
    if (loader->is_remote) return strait_received_ids_targets(&loader->received_valid, *out, out);
    if (loader->valid == NULL || loader->valid->n_documents == 0) return STRAIT_OK;
    return strait_sampler_count_targets(&loader->valid_sampler, 0,
                                        strait_loader_valid_windows(loader), out);
}

strait_err strait_loader_draw_valid(struct strait_loader *loader, int64_t batch, int32_t *tokens,
                                    int32_t *targets) {
    if (loader->is_remote)
        return strait_received_ids_get(&loader->received_valid, batch, tokens, targets);
    const int64_t context = loader->plan.shape.context;
    const int64_t first = batch * loader->plan.microbatch;
    const int64_t left = strait_loader_valid_windows(loader) - first;
    const int64_t rows = left < loader->plan.microbatch ? left : loader->plan.microbatch;
    STRAIT_TRY(strait_sampler_fill(&loader->valid_sampler, first, rows, tokens, targets));
    /* The last microbatch may be partial. Its missing rows have no target, hence no loss. */
    for (int64_t i = rows * context; i < loader->plan.microbatch * context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return STRAIT_OK;
}

strait_err strait_loader_load_valid(struct strait_loader *loader, struct strait_stream *stream,
                                    int slot, int64_t batch) {
    struct host_buffer *buffer = NULL;
    STRAIT_TRY(next_buffer(loader, &buffer));
    STRAIT_TRY(strait_loader_draw_valid(loader, batch, buffer->tokens, buffer->targets));
    return upload_ids(loader, stream, slot, buffer);
}

strait_documents strait_loader_documents(const struct strait_loader *loader, int slot) {
    return strait_slot_documents_of(&loader->documents, slot);
}

strait_tensor strait_loader_tokens(const struct strait_loader *loader, int slot) {
    return loader->tokens[slot];
}

strait_tensor strait_loader_targets(const struct strait_loader *loader, int slot) {
    return loader->targets[slot];
}
