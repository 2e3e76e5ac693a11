#include "data/corpus.h"

#include "base/alloc.h"
#include "data/manifest.h"

#include <string.h>

/* A name shorter than the ending must not be read before its start. */
static int ends_with(const char *text, const char *ending) {
    const size_t n = strlen(text);
    const size_t k = strlen(ending);
    return n >= k && strcmp(text + n - k, ending) == 0;
}

/* The number of shards is known before the first one is opened. */
static strait_err reserve(struct strait_corpus *corpus, int n) {
    const size_t count = (size_t)n;
    STRAIT_TRY(strait_alloc(count, sizeof *corpus->shards, "shards", (void **)&corpus->shards));
    STRAIT_TRY(strait_alloc(count, sizeof *corpus->paths, "shard paths", (void **)&corpus->paths));
    return strait_alloc(count, sizeof *corpus->hashes, "shard hashes", (void **)&corpus->hashes);
}

/* Checks the vocabulary and tokenizer in a shard's header against those of the shards before it and
 * adopts them. Files of other programs state neither; they are compatible with everything. */
static strait_err merge_header(struct strait_corpus *corpus, const struct strait_shard *shard) {
    if (shard->vocab != 0 && corpus->vocab != 0 && shard->vocab != corpus->vocab)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: vocabulary of %lld, but %s has %lld", shard->path,
                           (long long)shard->vocab, corpus->name, (long long)corpus->vocab);
    if (shard->tokenizer[0] != '\0' && corpus->tokenizer[0] != '\0' &&
        strcmp(shard->tokenizer, corpus->tokenizer) != 0)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "%s: tokenized with tokenizer %s, but %s with %s; tokenize both with the same",
            shard->path, shard->tokenizer, corpus->name, corpus->tokenizer);
    if (shard->vocab != 0) corpus->vocab = shard->vocab;
    if (shard->tokenizer[0] != '\0')
        memcpy(corpus->tokenizer, shard->tokenizer, sizeof corpus->tokenizer);
    corpus->n_tokens += shard->n_tokens;
    return STRAIT_OK;
}

/* Shards are opened at once, so that a missing one is reported before training. */
static strait_err add_shard(struct strait_corpus *corpus, const char *path) {
    const int i = corpus->n_shards;
    STRAIT_TRY(strait_alloc_string(path, &corpus->paths[i]));
    corpus->n_shards++; // now strait_corpus_close releases the path, also after an error below
    STRAIT_TRY(strait_shard_init(&corpus->shards[i], corpus->paths[i]));
    return merge_header(corpus, &corpus->shards[i]);
}

/* Opens the shards of a list with commas. */
static strait_err add_listed(struct strait_corpus *corpus) {
    int n = 1;
    for (const char *c = corpus->name; *c != '\0'; c++)
        n += *c == ',';
    STRAIT_TRY(reserve(corpus, n));
    const char *at = corpus->name;
    for (int i = 0; i < n; i++) {
        const size_t length = strcspn(at, ",");
        char path[STRAIT_PATH_MAX];
        if (length == 0)
            return STRAIT_FAIL(STRAIT_ECONFIG, "data \"%s\": an empty name in the list",
                               corpus->name);
        STRAIT_TRY(strait_file_path(path, "%.*s", (int)length, at));
        STRAIT_TRY(add_shard(corpus, path));
        at += length + 1;
    }
    return STRAIT_OK;
}

/* Opens the shards of a manifest. Their lengths are compared now, their hashes only by
 * strait_corpus_verify, which reads every byte. */
static strait_err add_manifest(struct strait_corpus *corpus) {
    struct strait_manifest manifest = {0};
    strait_err err = strait_manifest_init(&manifest, corpus->name);
    if (err == STRAIT_OK) err = reserve(corpus, manifest.n_shards);
    for (int i = 0; err == STRAIT_OK && i < manifest.n_shards; i++) {
        strait_manifest_entry entry;
        err = strait_manifest_shard(&manifest, i, &entry);
        if (err == STRAIT_OK) err = add_shard(corpus, entry.path);
        if (err != STRAIT_OK) break;
        memcpy(corpus->hashes[i], entry.hash, sizeof entry.hash);
        if (corpus->shards[i].n_tokens != entry.n_tokens)
            err = STRAIT_FAIL(
                STRAIT_EDATA,
                "%s: %lld tokens, but the manifest %s says %lld; tokenize the text again",
                corpus->paths[i], (long long)corpus->shards[i].n_tokens, corpus->name,
                (long long)entry.n_tokens);
    }
    strait_manifest_fini(&manifest);
    return err;
}

/* The ending decides, because a manifest and a list of shards are both given under one option. */
strait_err strait_corpus_open(const char *path, struct strait_corpus **out) {
    struct strait_corpus *corpus = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *corpus, "corpus", (void **)&corpus));
    strait_err err = strait_alloc_string(path, &corpus->name);
    if (err == STRAIT_OK)
        err = ends_with(path, ".json") ? add_manifest(corpus) : add_listed(corpus);
    if (err == STRAIT_OK)
        *out = corpus;
    else
        strait_corpus_close(&corpus);
    return err;
}

void strait_corpus_close(struct strait_corpus **corpus) {
    struct strait_corpus *c = *corpus;
    if (c == NULL) return;
    for (int i = 0; i < c->n_shards; i++) {
        strait_shard_fini(&c->shards[i]);
        strait_alloc_free(c->paths[i]);
    }
    strait_alloc_free(c->hashes);
    strait_alloc_free(c->paths);
    strait_alloc_free(c->shards);
    strait_alloc_free(c->name);
    strait_alloc_free(c);
    *corpus = NULL;
}

/* A shard for a smaller vocabulary is fine, since all its ids exist. Ids are then checked against
 * the vocabulary of the model. */
strait_err strait_corpus_expect(struct strait_corpus *corpus, int64_t vocab,
                                const char *tokenizer) {
    if (corpus->vocab > vocab)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: tokenized for a vocabulary of %lld, but the model has %lld; set "
                           "model.vocab or tokenize again",
                           corpus->name, (long long)corpus->vocab, (long long)vocab);
    if (tokenizer != NULL && corpus->tokenizer[0] != '\0' &&
        strcmp(tokenizer, corpus->tokenizer) != 0)
        return STRAIT_FAIL(
            STRAIT_EDATA,
            "%s: tokenized with tokenizer %s, not with this one (%s); tokenize the text "
            "again",
            corpus->name, corpus->tokenizer, tokenizer);
    corpus->vocab = vocab;
    return STRAIT_OK;
}

/* A range may cross shards, because windows of the training data do. */
strait_err strait_corpus_read(const struct strait_corpus *corpus, int64_t first, int64_t n,
                              int32_t *out) {
    if (first < 0 || n < 0 || first > corpus->n_tokens - n)
        return STRAIT_FAIL(STRAIT_EINVAL, "%s: tokens %lld to %lld are outside the corpus of %lld",
                           corpus->name, (long long)first, (long long)(first + n),
                           (long long)corpus->n_tokens);
    for (int i = 0; i < corpus->n_shards && n > 0; i++) {
        /* `first` counts from the start of shard i; a range may cross into the next shards. */
        const struct strait_shard *shard = &corpus->shards[i];
        if (first < shard->n_tokens) {
            const int64_t left = shard->n_tokens - first;
            const int64_t count = n < left ? n : left;
            STRAIT_TRY(strait_shard_read(shard, first, count, corpus->vocab, out));
            out += count;
            n -= count;
            first += count;
        }
        first -= shard->n_tokens;
    }
    return STRAIT_OK;
}

strait_err strait_corpus_check(const struct strait_corpus *corpus) {
    for (int i = 0; i < corpus->n_shards; i++)
        STRAIT_TRY(strait_shard_check(&corpus->shards[i]));
    return STRAIT_OK;
}

/* Hashes first: they tell a damaged copy from ids that were wrong when they were written. */
strait_err strait_corpus_verify(const struct strait_corpus *corpus) {
    for (int i = 0; i < corpus->n_shards; i++) {
        const struct strait_shard *shard = &corpus->shards[i];
        if (corpus->hashes[i][0] != '\0') {
            char hash[STRAIT_HASH_TEXT];
            STRAIT_TRY(strait_hash_file(shard->path, hash));
            if (strcmp(hash, corpus->hashes[i]) != 0)
                return STRAIT_FAIL(
                    STRAIT_EDATA,
                    "%s: damaged: its hash is %s, the manifest says %s; copy it again "
                    "or tokenize the text again",
                    shard->path, hash, corpus->hashes[i]);
        }
        STRAIT_TRY(strait_shard_verify(shard, corpus->vocab));
    }
    return STRAIT_OK;
}

/* For the public interface, which does not show the struct. */
void strait_corpus_describe(const struct strait_corpus *corpus, strait_corpus_info *out) {
    *out = (strait_corpus_info){.n_tokens = corpus->n_tokens,
                                .vocab = corpus->vocab,
                                .tokenizer = corpus->tokenizer,
                                .n_shards = corpus->n_shards};
}

void strait_corpus_describe_shard(const struct strait_corpus *corpus, int i,
                                  strait_corpus_shard_info *out) {
    *out = (strait_corpus_shard_info){.path = corpus->paths[i],
                                      .n_tokens = corpus->shards[i].n_tokens,
                                      .id_bytes = corpus->shards[i].id_bytes};
}
