#include "stage/loader.h"

#include "backend/slab.h"
#include "base/alloc.h"
#include "data/tokenizer/tokenizer.h"

#include <string.h>

/* Ids that were given: all microbatches of one step, or of a validation. Zeroed has none. */
struct given {
    int32_t *tokens, *targets;
    unsigned char *is_here; // one a microbatch
    int64_t n_batches;
};

/* Where ids are laid out on the host. The device may still be copying from one while the next is
 * filled. */
enum {
    DESKS = 2
};

struct desk {
    int32_t *tokens, *targets;
    struct strait_event copied; // the last copy from here
};

struct strait_loader {
    struct strait_corpus *train, *valid; // valid is NULL where the run has none
    int is_given;                        // both are NULL, and the next four count
    int64_t given_windows, given_step;
    struct given given_train, given_valid;
    int64_t vocab;
    int64_t valid_limit; // tokens; 0: all
    uint64_t seed;

    strait_run_plan plan;
    strait_sampler train_sampler, valid_sampler;
    struct strait_backend *backend;
    struct strait_slab capacity;
    strait_tensor *tokens, *targets; // one a slot
    struct desk desks[DESKS];
    int desk; // the one used last
};

/* The tokenizer, where the run names one, must be the one the shards were made with. */
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
    const char *print = strait_tokenizer_fingerprint(tokenizer);
    if (err == STRAIT_OK) err = strait_corpus_expect(loader->train, loader->vocab, print);
    if (err == STRAIT_OK && loader->valid != NULL)
        err = strait_corpus_expect(loader->valid, loader->vocab, print);
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
    const char *print = loader->train->tokenizer[0] != '\0' ? loader->train->tokenizer : NULL;
    STRAIT_TRY(strait_corpus_expect(loader->train, loader->vocab, NULL));
    if (loader->valid == NULL) return STRAIT_OK;
    const int knows = print != NULL && loader->valid->tokenizer[0] != '\0';
    return strait_corpus_expect(loader->valid, loader->vocab, knows ? print : NULL);
}

/* What is wrong with them is said with the key that names them. */
static strait_err open_shards(const char *key, const char *path, struct strait_corpus **out) {
    const strait_err err = strait_corpus_open(path, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", key);
    return err;
}

static strait_err open_into(struct strait_loader *loader, const strait_run *run) {
    if (run->data.train[0] == '\0')
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "data.train is not set: name token shards that \"strait tokenize\" made");
    loader->vocab = run->model.vocab;
    loader->seed = (uint64_t)run->train.seed;
    loader->valid_limit = run->data.valid_tokens;
    STRAIT_TRY(open_shards("data.train", run->data.train, &loader->train));
    if (run->data.valid[0] != '\0')
        STRAIT_TRY(open_shards("data.valid", run->data.valid, &loader->valid));
    STRAIT_TRY(check_tokenizer(loader, run));
    return check_corpora(loader);
}

strait_err strait_loader_open(const strait_run *run, struct strait_loader **out) {
    struct strait_loader *loader = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *loader, "feed", (void **)&loader));
    const strait_err err = open_into(loader, run);
    if (err != STRAIT_OK) {
        strait_loader_close(&loader);
        return err;
    }
    *out = loader;
    return STRAIT_OK;
}

strait_err strait_loader_open_given(int64_t vocab, int64_t valid_windows,
                                    struct strait_loader **out) {
    struct strait_loader *loader = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *loader, "feed", (void **)&loader));
    loader->vocab = vocab;
    loader->is_given = 1;
    loader->given_windows = valid_windows;
    loader->given_step = -1;
    *out = loader;
    return STRAIT_OK;
}

static void given_fini(struct given *given) {
    strait_alloc_free(given->tokens);
    strait_alloc_free(given->targets);
    strait_alloc_free(given->is_here);
    *given = (struct given){0};
}

void strait_loader_close(struct strait_loader **loader) {
    struct strait_loader *f = *loader;
    if (f == NULL) return;
    given_fini(&f->given_train);
    given_fini(&f->given_valid);
    strait_loader_release(f);
    strait_corpus_close(&f->train);
    strait_corpus_close(&f->valid);
    strait_alloc_free(f);
    *loader = NULL;
}

void strait_loader_release(struct strait_loader *loader) {
    strait_slab_fini(&loader->capacity);
    strait_alloc_free(loader->tokens);
    strait_alloc_free(loader->targets);
    loader->tokens = loader->targets = NULL;
    for (int i = 0; i < DESKS; i++) {
        struct desk *desk = &loader->desks[i];
        if (desk->copied.backend != NULL) loader->backend->ops->event_close(&desk->copied);
        if (desk->tokens != NULL) loader->backend->ops->release_host(loader->backend, desk->tokens);
        *desk = (struct desk){0};
    }
}

int64_t strait_loader_vocab(const struct strait_loader *loader) {
    return loader->vocab;
}

const char *strait_loader_tokenizer(const struct strait_loader *loader) {
    return loader->train != NULL ? loader->train->tokenizer : "";
}

int64_t strait_loader_train_tokens(const struct strait_loader *loader) {
    return loader->train != NULL ? loader->train->n_tokens : 0;
}

static int64_t microbatch_tokens(const strait_run_plan *plan) {
    return plan->microbatch * plan->shape.context;
}

size_t strait_loader_device_bytes(const strait_run_plan *plan, int n_slots) {
    const size_t each = (size_t)microbatch_tokens(plan) * sizeof(int32_t);
    return (size_t)n_slots * 2 * each; // inputs and targets
}

size_t strait_loader_bytes(const strait_run_plan *plan, int n_slots) {
    return strait_loader_device_bytes(plan, n_slots + DESKS);
}

static strait_err given_init(struct given *given, int64_t n_batches, int64_t n_tokens) {
    const size_t n = (size_t)(n_batches * n_tokens);
    given_fini(given);
    given->n_batches = n_batches;
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "given ids", (void **)&given->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "given ids", (void **)&given->targets));
    return strait_alloc((size_t)n_batches, 1, "given ids", (void **)&given->is_here);
}

strait_err strait_loader_cut(struct strait_loader *loader, const strait_run_plan *plan) {
    loader->plan = *plan;
    if (loader->is_given) {
        const int64_t n = microbatch_tokens(plan);
        STRAIT_TRY(given_init(&loader->given_train, plan->n_microbatches, n));
        return given_init(&loader->given_valid, strait_loader_valid_batches(loader), n);
    }
    STRAIT_TRY(strait_sampler_init(loader->train, plan->shape.context, loader->seed,
                                   &loader->train_sampler));
    if (loader->valid == NULL) return STRAIT_OK;
    return strait_sampler_in_order(loader->valid, plan->shape.context, &loader->valid_sampler);
}

/* Ids index tables: what comes from outside is held against them. */
static int are_ids(const int32_t *ids, int64_t n, int64_t vocab, int32_t least) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < least || ids[i] >= vocab) return 0;
    return 1;
}

static strait_err take_given(struct strait_loader *loader, struct given *given, int64_t batch,
                             const int32_t *tokens, const int32_t *targets) {
    const int64_t n = microbatch_tokens(&loader->plan);
    if (given->is_here == NULL || batch < 0 || batch >= given->n_batches)
        return STRAIT_FAIL(STRAIT_EPROTO, "ids of microbatch %lld, expected 0 to %lld",
                           (long long)batch, (long long)given->n_batches - 1);
    if ((tokens != NULL && !are_ids(tokens, n, loader->vocab, 0)) ||
        (targets != NULL && !are_ids(targets, n, loader->vocab, -1)))
        return STRAIT_FAIL(STRAIT_EPROTO, "ids of microbatch %lld lie outside the vocabulary %lld",
                           (long long)batch, (long long)loader->vocab);
    const size_t bytes = (size_t)n * sizeof(int32_t);
    if (tokens != NULL) memcpy(given->tokens + batch * n, tokens, bytes);
    if (targets != NULL) memcpy(given->targets + batch * n, targets, bytes);
    given->is_here[batch] = 1;
    return STRAIT_OK;
}

strait_err strait_loader_give(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              const int32_t *tokens, const int32_t *targets) {
    if (step != loader->given_step && loader->given_train.is_here != NULL)
        memset(loader->given_train.is_here, 0, (size_t)loader->given_train.n_batches);
    loader->given_step = step;
    return take_given(loader, &loader->given_train, microbatch, tokens, targets);
}

strait_err strait_loader_give_valid(struct strait_loader *loader, int64_t batch,
                                    const int32_t *tokens, const int32_t *targets) {
    return take_given(loader, &loader->given_valid, batch, tokens, targets);
}

static strait_err recall(const struct strait_loader *loader, const struct given *given,
                         int64_t batch, int32_t *tokens, int32_t *targets) {
    const int64_t n = microbatch_tokens(&loader->plan);
    if (batch < 0 || batch >= given->n_batches || !given->is_here[batch])
        return STRAIT_FAIL(STRAIT_EPROTO, "the ids of microbatch %lld have not come",
                           (long long)batch);
    memcpy(tokens, given->tokens + batch * n, (size_t)n * sizeof *tokens);
    memcpy(targets, given->targets + batch * n, (size_t)n * sizeof *targets);
    return STRAIT_OK;
}

strait_err strait_loader_prepare(struct strait_loader *loader, struct strait_backend *backend,
                                 int n_slots) {
    const int64_t n = microbatch_tokens(&loader->plan);
    loader->backend = backend;
    STRAIT_TRY(
        strait_alloc((size_t)n_slots, sizeof *loader->tokens, "ids", (void **)&loader->tokens));
    STRAIT_TRY(
        strait_alloc((size_t)n_slots, sizeof *loader->targets, "ids", (void **)&loader->targets));
    for (int i = 0; i < DESKS; i++) {
        struct desk *desk = &loader->desks[i];
        STRAIT_TRY(backend->ops->alloc_host(backend, (size_t)(2 * n) * sizeof(int32_t),
                                            (void **)&desk->tokens));
        desk->targets = desk->tokens + n;
        STRAIT_TRY(backend->ops->event_open(backend, &desk->copied));
    }
    for (int i = 0; i < n_slots; i++) {
        STRAIT_TRY(strait_slab_add(&loader->capacity, STRAIT_I32, n, 1, &loader->tokens[i]));
        STRAIT_TRY(strait_slab_add(&loader->capacity, STRAIT_I32, n, 1, &loader->targets[i]));
    }
    return strait_slab_commit(&loader->capacity, backend);
}

/* The next desk, once the device has no use for what lies on it. */
static strait_err clear_desk(struct strait_loader *loader, struct desk **out) {
    int is_reached = 0;
    loader->desk = (loader->desk + 1) % DESKS;
    *out = &loader->desks[loader->desk];
    return loader->backend->ops->event_query(&(*out)->copied, 1, &is_reached);
}

static strait_err bring(struct strait_loader *loader, struct strait_stream *stream, int slot,
                        struct desk *desk) {
    const struct strait_backend_ops *ops = loader->backend->ops;
    const size_t bytes = strait_tensor_bytes(loader->tokens[slot]);
    STRAIT_TRY(ops->upload(stream, loader->tokens[slot].data, desk->tokens, bytes));
    STRAIT_TRY(ops->upload(stream, loader->targets[slot].data, desk->targets, bytes));
    return ops->event_record(stream, &desk->copied);
}

strait_err strait_loader_draw(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              int32_t *tokens, int32_t *targets) {
    const int64_t rows = loader->plan.microbatch;
    if (!loader->is_given)
        return strait_sampler_fill(&loader->train_sampler,
                                   step * loader->plan.sequences + microbatch * rows, rows, tokens,
                                   targets);
    if (step != loader->given_step)
        return STRAIT_FAIL(STRAIT_EPROTO, "the ids of step %lld have not come",
                           (long long)step + 1);
    return recall(loader, &loader->given_train, microbatch, tokens, targets);
}

strait_err strait_loader_load(struct strait_loader *loader, struct strait_stream *stream, int slot,
                              int64_t step, int64_t microbatch) {
    struct desk *desk = NULL;
    STRAIT_TRY(clear_desk(loader, &desk));
    STRAIT_TRY(strait_loader_draw(loader, step, microbatch, desk->tokens, desk->targets));
    return bring(loader, stream, slot, desk);
}

int64_t strait_loader_valid_windows(const struct strait_loader *loader) {
    if (loader->is_given) return loader->given_windows;
    if (loader->valid == NULL) return 0;
    const int64_t context = loader->plan.shape.context;
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

strait_err strait_loader_draw_valid(struct strait_loader *loader, int64_t batch, int32_t *tokens,
                                    int32_t *targets) {
    if (loader->is_given) return recall(loader, &loader->given_valid, batch, tokens, targets);
    const int64_t context = loader->plan.shape.context;
    const int64_t first = batch * loader->plan.microbatch;
    const int64_t left = strait_loader_valid_windows(loader) - first;
    const int64_t rows = left < loader->plan.microbatch ? left : loader->plan.microbatch;
    STRAIT_TRY(strait_sampler_fill(&loader->valid_sampler, first, rows, tokens, targets));
    for (int64_t i = rows * context; i < loader->plan.microbatch * context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return STRAIT_OK;
}

strait_err strait_loader_load_valid(struct strait_loader *loader, struct strait_stream *stream,
                                    int slot, int64_t batch) {
    struct desk *desk = NULL;
    STRAIT_TRY(clear_desk(loader, &desk));
    STRAIT_TRY(strait_loader_draw_valid(loader, batch, desk->tokens, desk->targets));
    return bring(loader, stream, slot, desk);
}

strait_tensor strait_loader_tokens(const struct strait_loader *loader, int slot) {
    return loader->tokens[slot];
}

strait_tensor strait_loader_targets(const struct strait_loader *loader, int slot) {
    return loader->targets[slot];
}
