#include "pipeline/feed.h"

#include "backend/slab.h"
#include "base/alloc.h"
#include "data/tokenizer.h"

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
    struct strait_mark copied; // the last copy from here
};

struct strait_feed {
    struct strait_corpus *train, *valid; // valid is NULL where the run has none
    int is_given;                        // both are NULL, and the next four count
    int64_t given_windows, given_step;
    struct given given_train, given_valid;
    int64_t vocab;
    int64_t valid_limit; // tokens; 0: all
    uint64_t seed;

    strait_recipe recipe;
    strait_sampler train_sampler, valid_sampler;
    struct strait_backend *backend;
    struct strait_slab room;
    strait_tensor *tokens, *targets; // one a slot
    struct desk desks[DESKS];
    int desk; // the one used last
};

/* The tokenizer, where the run names one, must be the one the shards were made with. */
static strait_err check_tokenizer(struct strait_feed *feed, const strait_run *run) {
    if (run->data.tokenizer[0] == '\0') return STRAIT_OK;
    struct strait_tokenizer *tokenizer = NULL;
    const strait_err opened = strait_tokenizer_open(run->data.tokenizer, &tokenizer);
    if (opened != STRAIT_OK) strait_err_prefix("data.tokenizer");
    STRAIT_TRY(opened);
    const int64_t vocab = strait_tokenizer_vocab(tokenizer);
    if (feed->vocab == 0) feed->vocab = vocab;
    strait_err err = STRAIT_OK;
    if (vocab > feed->vocab)
        err = STRAIT_FAIL(STRAIT_ECONFIG,
                          "model.vocab is %lld, but %s has %lld tokens: raise it or leave it out",
                          (long long)feed->vocab, run->data.tokenizer, (long long)vocab);
    const char *print = strait_tokenizer_fingerprint(tokenizer);
    if (err == STRAIT_OK) err = strait_corpus_expect(feed->train, feed->vocab, print);
    if (err == STRAIT_OK && feed->valid != NULL)
        err = strait_corpus_expect(feed->valid, feed->vocab, print);
    strait_tokenizer_close(&tokenizer);
    return err;
}

/* Without a tokenizer: training and validation shards must agree with each other. */
static strait_err check_corpora(struct strait_feed *feed) {
    if (feed->vocab == 0) feed->vocab = feed->train->vocab;
    if (feed->vocab == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s does not state its vocabulary: set model.vocab or data.tokenizer",
                           feed->train->name);
    const char *print = feed->train->tokenizer[0] != '\0' ? feed->train->tokenizer : NULL;
    STRAIT_TRY(strait_corpus_expect(feed->train, feed->vocab, NULL));
    if (feed->valid == NULL) return STRAIT_OK;
    const int knows = print != NULL && feed->valid->tokenizer[0] != '\0';
    return strait_corpus_expect(feed->valid, feed->vocab, knows ? print : NULL);
}

/* What is wrong with them is said with the key that names them. */
static strait_err open_shards(const char *key, const char *path, struct strait_corpus **out) {
    const strait_err err = strait_corpus_open(path, out);
    if (err != STRAIT_OK) strait_err_prefix("%s", key);
    return err;
}

static strait_err open_into(struct strait_feed *feed, const strait_run *run) {
    if (run->data.train[0] == '\0')
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "data.train is not set: name token shards that \"strait tokenize\" made");
    feed->vocab = run->model.vocab;
    feed->seed = (uint64_t)run->train.seed;
    feed->valid_limit = run->data.valid_tokens;
    STRAIT_TRY(open_shards("data.train", run->data.train, &feed->train));
    if (run->data.valid[0] != '\0')
        STRAIT_TRY(open_shards("data.valid", run->data.valid, &feed->valid));
    STRAIT_TRY(check_tokenizer(feed, run));
    return check_corpora(feed);
}

strait_err strait_feed_open(const strait_run *run, struct strait_feed **out) {
    struct strait_feed *feed = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *feed, "feed", (void **)&feed));
    const strait_err err = open_into(feed, run);
    if (err != STRAIT_OK) {
        strait_feed_close(&feed);
        return err;
    }
    *out = feed;
    return STRAIT_OK;
}

strait_err strait_feed_open_given(int64_t vocab, int64_t valid_windows, struct strait_feed **out) {
    struct strait_feed *feed = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *feed, "feed", (void **)&feed));
    feed->vocab = vocab;
    feed->is_given = 1;
    feed->given_windows = valid_windows;
    feed->given_step = -1;
    *out = feed;
    return STRAIT_OK;
}

static void given_fini(struct given *given) {
    strait_alloc_free(given->tokens);
    strait_alloc_free(given->targets);
    strait_alloc_free(given->is_here);
    *given = (struct given){0};
}

void strait_feed_close(struct strait_feed **feed) {
    struct strait_feed *f = *feed;
    if (f == NULL) return;
    given_fini(&f->given_train);
    given_fini(&f->given_valid);
    strait_feed_release(f);
    strait_corpus_close(&f->train);
    strait_corpus_close(&f->valid);
    strait_alloc_free(f);
    *feed = NULL;
}

void strait_feed_release(struct strait_feed *feed) {
    strait_slab_fini(&feed->room);
    strait_alloc_free(feed->tokens);
    strait_alloc_free(feed->targets);
    feed->tokens = feed->targets = NULL;
    for (int i = 0; i < DESKS; i++) {
        struct desk *desk = &feed->desks[i];
        if (desk->copied.backend != NULL) feed->backend->ops->mark_close(&desk->copied);
        if (desk->tokens != NULL) feed->backend->ops->release_host(feed->backend, desk->tokens);
        *desk = (struct desk){0};
    }
}

int64_t strait_feed_vocab(const struct strait_feed *feed) {
    return feed->vocab;
}

const char *strait_feed_tokenizer(const struct strait_feed *feed) {
    return feed->train != NULL ? feed->train->tokenizer : "";
}

int64_t strait_feed_train_tokens(const struct strait_feed *feed) {
    return feed->train != NULL ? feed->train->n_tokens : 0;
}

static int64_t microbatch_tokens(const strait_recipe *recipe) {
    return recipe->microbatch * recipe->shape.context;
}

size_t strait_feed_device_bytes(const strait_recipe *recipe, int n_slots) {
    const size_t each = (size_t)microbatch_tokens(recipe) * sizeof(int32_t);
    return (size_t)n_slots * 2 * each; // inputs and targets
}

size_t strait_feed_bytes(const strait_recipe *recipe, int n_slots) {
    return strait_feed_device_bytes(recipe, n_slots + DESKS);
}

static strait_err given_init(struct given *given, int64_t n_batches, int64_t n_tokens) {
    const size_t n = (size_t)(n_batches * n_tokens);
    given_fini(given);
    given->n_batches = n_batches;
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "given ids", (void **)&given->tokens));
    STRAIT_TRY(strait_alloc(n, sizeof(int32_t), "given ids", (void **)&given->targets));
    return strait_alloc((size_t)n_batches, 1, "given ids", (void **)&given->is_here);
}

strait_err strait_feed_cut(struct strait_feed *feed, const strait_recipe *recipe) {
    feed->recipe = *recipe;
    if (feed->is_given) {
        const int64_t n = microbatch_tokens(recipe);
        STRAIT_TRY(given_init(&feed->given_train, recipe->n_microbatches, n));
        return given_init(&feed->given_valid, strait_feed_valid_batches(feed), n);
    }
    STRAIT_TRY(
        strait_sampler_init(feed->train, recipe->shape.context, feed->seed, &feed->train_sampler));
    if (feed->valid == NULL) return STRAIT_OK;
    return strait_sampler_in_order(feed->valid, recipe->shape.context, &feed->valid_sampler);
}

/* Ids index tables: what comes from outside is held against them. */
static int are_ids(const int32_t *ids, int64_t n, int64_t vocab, int32_t least) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < least || ids[i] >= vocab) return 0;
    return 1;
}

static strait_err take_given(struct strait_feed *feed, struct given *given, int64_t batch,
                             const int32_t *tokens, const int32_t *targets) {
    const int64_t n = microbatch_tokens(&feed->recipe);
    if (given->is_here == NULL || batch < 0 || batch >= given->n_batches)
        return STRAIT_FAIL(STRAIT_EPROTO, "ids of microbatch %lld, expected 0 to %lld",
                           (long long)batch, (long long)given->n_batches - 1);
    if ((tokens != NULL && !are_ids(tokens, n, feed->vocab, 0)) ||
        (targets != NULL && !are_ids(targets, n, feed->vocab, -1)))
        return STRAIT_FAIL(STRAIT_EPROTO, "ids of microbatch %lld lie outside the vocabulary %lld",
                           (long long)batch, (long long)feed->vocab);
    const size_t bytes = (size_t)n * sizeof(int32_t);
    if (tokens != NULL) memcpy(given->tokens + batch * n, tokens, bytes);
    if (targets != NULL) memcpy(given->targets + batch * n, targets, bytes);
    given->is_here[batch] = 1;
    return STRAIT_OK;
}

strait_err strait_feed_give(struct strait_feed *feed, int64_t step, int64_t microbatch,
                            const int32_t *tokens, const int32_t *targets) {
    if (step != feed->given_step && feed->given_train.is_here != NULL)
        memset(feed->given_train.is_here, 0, (size_t)feed->given_train.n_batches);
    feed->given_step = step;
    return take_given(feed, &feed->given_train, microbatch, tokens, targets);
}

strait_err strait_feed_give_valid(struct strait_feed *feed, int64_t batch, const int32_t *tokens,
                                  const int32_t *targets) {
    return take_given(feed, &feed->given_valid, batch, tokens, targets);
}

static strait_err recall(const struct strait_feed *feed, const struct given *given, int64_t batch,
                         int32_t *tokens, int32_t *targets) {
    const int64_t n = microbatch_tokens(&feed->recipe);
    if (batch < 0 || batch >= given->n_batches || !given->is_here[batch])
        return STRAIT_FAIL(STRAIT_EPROTO, "the ids of microbatch %lld have not come",
                           (long long)batch);
    memcpy(tokens, given->tokens + batch * n, (size_t)n * sizeof *tokens);
    memcpy(targets, given->targets + batch * n, (size_t)n * sizeof *targets);
    return STRAIT_OK;
}

strait_err strait_feed_prepare(struct strait_feed *feed, struct strait_backend *backend,
                               int n_slots) {
    const int64_t n = microbatch_tokens(&feed->recipe);
    feed->backend = backend;
    STRAIT_TRY(strait_alloc((size_t)n_slots, sizeof *feed->tokens, "ids", (void **)&feed->tokens));
    STRAIT_TRY(
        strait_alloc((size_t)n_slots, sizeof *feed->targets, "ids", (void **)&feed->targets));
    for (int i = 0; i < DESKS; i++) {
        struct desk *desk = &feed->desks[i];
        STRAIT_TRY(backend->ops->alloc_host(backend, (size_t)(2 * n) * sizeof(int32_t),
                                            (void **)&desk->tokens));
        desk->targets = desk->tokens + n;
        STRAIT_TRY(backend->ops->mark_open(backend, &desk->copied));
    }
    for (int i = 0; i < n_slots; i++) {
        STRAIT_TRY(strait_slab_add(&feed->room, STRAIT_I32, n, 1, &feed->tokens[i]));
        STRAIT_TRY(strait_slab_add(&feed->room, STRAIT_I32, n, 1, &feed->targets[i]));
    }
    return strait_slab_commit(&feed->room, backend);
}

/* The next desk, once the device has no use for what lies on it. */
static strait_err clear_desk(struct strait_feed *feed, struct desk **out) {
    int is_reached = 0;
    feed->desk = (feed->desk + 1) % DESKS;
    *out = &feed->desks[feed->desk];
    return feed->backend->ops->reach(&(*out)->copied, 1, &is_reached);
}

static strait_err bring(struct strait_feed *feed, struct strait_stream *stream, int slot,
                        struct desk *desk) {
    const struct strait_backend_ops *ops = feed->backend->ops;
    const size_t bytes = strait_tensor_bytes(feed->tokens[slot]);
    STRAIT_TRY(ops->upload(stream, feed->tokens[slot].data, desk->tokens, bytes));
    STRAIT_TRY(ops->upload(stream, feed->targets[slot].data, desk->targets, bytes));
    return ops->mark(stream, &desk->copied);
}

strait_err strait_feed_draw(struct strait_feed *feed, int64_t step, int64_t microbatch,
                            int32_t *tokens, int32_t *targets) {
    const int64_t rows = feed->recipe.microbatch;
    if (!feed->is_given)
        return strait_sampler_fill(&feed->train_sampler,
                                   step * feed->recipe.sequences + microbatch * rows, rows, tokens,
                                   targets);
    if (step != feed->given_step)
        return STRAIT_FAIL(STRAIT_EPROTO, "the ids of step %lld have not come",
                           (long long)step + 1);
    return recall(feed, &feed->given_train, microbatch, tokens, targets);
}

strait_err strait_feed_load(struct strait_feed *feed, struct strait_stream *stream, int slot,
                            int64_t step, int64_t microbatch) {
    struct desk *desk = NULL;
    STRAIT_TRY(clear_desk(feed, &desk));
    STRAIT_TRY(strait_feed_draw(feed, step, microbatch, desk->tokens, desk->targets));
    return bring(feed, stream, slot, desk);
}

int64_t strait_feed_valid_windows(const struct strait_feed *feed) {
    if (feed->is_given) return feed->given_windows;
    if (feed->valid == NULL) return 0;
    const int64_t context = feed->recipe.shape.context;
    const int64_t limit = feed->valid_limit > 0 ? (feed->valid_limit + context - 1) / context
                                                : feed->valid_sampler.n_windows;
    return limit < feed->valid_sampler.n_windows ? limit : feed->valid_sampler.n_windows;
}

int64_t strait_feed_valid_batches(const struct strait_feed *feed) {
    return (strait_feed_valid_windows(feed) + feed->recipe.microbatch - 1) /
           feed->recipe.microbatch;
}

int64_t strait_feed_valid_tokens(const struct strait_feed *feed) {
    return strait_feed_valid_windows(feed) * feed->recipe.shape.context;
}

strait_err strait_feed_draw_valid(struct strait_feed *feed, int64_t batch, int32_t *tokens,
                                  int32_t *targets) {
    if (feed->is_given) return recall(feed, &feed->given_valid, batch, tokens, targets);
    const int64_t context = feed->recipe.shape.context;
    const int64_t first = batch * feed->recipe.microbatch;
    const int64_t left = strait_feed_valid_windows(feed) - first;
    const int64_t rows = left < feed->recipe.microbatch ? left : feed->recipe.microbatch;
    STRAIT_TRY(strait_sampler_fill(&feed->valid_sampler, first, rows, tokens, targets));
    for (int64_t i = rows * context; i < feed->recipe.microbatch * context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return STRAIT_OK;
}

strait_err strait_feed_load_valid(struct strait_feed *feed, struct strait_stream *stream, int slot,
                                  int64_t batch) {
    struct desk *desk = NULL;
    STRAIT_TRY(clear_desk(feed, &desk));
    STRAIT_TRY(strait_feed_draw_valid(feed, batch, desk->tokens, desk->targets));
    return bring(feed, stream, slot, desk);
}

strait_tensor strait_feed_tokens(const struct strait_feed *feed, int slot) {
    return feed->tokens[slot];
}

strait_tensor strait_feed_targets(const struct strait_feed *feed, int slot) {
    return feed->targets[slot];
}
