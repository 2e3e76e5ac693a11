#include "data/corpus.h"

#include "base/alloc.h"
#include "data/buffer.h"
#include "data/text/input.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name shorter than the ending must not be read before its start. */
static int ends_with(const char *text, const char *ending) {
    const size_t n = strlen(text);
    const size_t k = strlen(ending);
    return n >= k && strcmp(text + n - k, ending) == 0;
}

/* Makes space for one more shard. */
static strait_err reserve(struct strait_corpus *corpus) {
    const size_t n = (size_t)corpus->n_shards + 1;
    STRAIT_TRY(strait_buffer_reserve((void **)&corpus->shards, &corpus->capacity[0], n,
                                     sizeof *corpus->shards));
    STRAIT_TRY(strait_buffer_reserve((void **)&corpus->paths, &corpus->capacity[1], n,
                                     sizeof *corpus->paths));
    return strait_buffer_reserve((void **)&corpus->hashes, &corpus->capacity[2], n,
                                 sizeof *corpus->hashes);
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
    if (corpus->n_shards > 1 && (shard->is_tagged != 0) != (corpus->shards[0].is_tagged != 0))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: %s, unlike the files before it: make them two sources of a mixture",
                           shard->path, shard->is_tagged ? "has documents" : "has no documents");
    if (shard->vocab != 0) corpus->vocab = shard->vocab;
    corpus->n_documents += shard->n_documents;
    if (shard->tokenizer[0] != '\0')
        memcpy(corpus->tokenizer, shard->tokenizer, sizeof corpus->tokenizer);
    corpus->n_tokens += shard->n_tokens;
    return STRAIT_OK;
}

/* Shards are opened at once, so that a missing one is reported before training. */
static strait_err add_shard(struct strait_corpus *corpus, const char *path) {
    const int i = corpus->n_shards;
    STRAIT_TRY(reserve(corpus));
    STRAIT_TRY(strait_alloc_string(path, &corpus->paths[i]));
    corpus->shards[i] = (struct strait_shard){0};
    corpus->hashes[i][0] = '\0';
    corpus->n_shards++; // now strait_corpus_close releases the path, also after an error below
    struct strait_shard *shard = &corpus->shards[i];
    if (corpus->format == STRAIT_CORPUS_SHARD)
        STRAIT_TRY(strait_shard_init(shard, corpus->paths[i]));
    else
        STRAIT_TRY(strait_shard_init_raw(shard, corpus->paths[i],
                                         corpus->format == STRAIT_CORPUS_UINT16 ? 2 : 4));
    return merge_header(corpus, shard);
}

/* Compares the shard that was added last with its entry in a manifest. Lengths are compared now,
 * hashes only by strait_corpus_verify, which reads every byte. */
static strait_err compare_entry(struct strait_corpus *corpus, const strait_manifest_entry *entry,
                                const char *manifest) {
    const int last = corpus->n_shards - 1;
    memcpy(corpus->hashes[last], entry->hash, sizeof entry->hash);
    if (corpus->shards[last].n_tokens == entry->n_tokens) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: %lld tokens, but the manifest %s says %lld; tokenize the text again",
                       corpus->paths[last], (long long)corpus->shards[last].n_tokens, manifest,
                       (long long)entry->n_tokens);
}

/* Opens the shards of a manifest. */
static strait_err add_manifest(struct strait_corpus *corpus, const char *path) {
    struct strait_manifest manifest = {0};
    strait_err err = strait_manifest_init(&manifest, path);
    for (int i = 0; err == STRAIT_OK && i < manifest.n_shards; i++) {
        strait_manifest_entry entry;
        err = strait_manifest_shard(&manifest, i, &entry);
        if (err == STRAIT_OK) err = add_shard(corpus, entry.path);
        if (err == STRAIT_OK) err = compare_entry(corpus, &entry, path);
    }
    strait_manifest_fini(&manifest);
    return err;
}

/* Opens a shard that is named itself. Raw files of other programs have no manifest. */
static strait_err add_alone(struct strait_corpus *corpus, const char *path) {
    strait_manifest_entry entry;
    int has_entry = 0;
    STRAIT_TRY(add_shard(corpus, path));
    if (corpus->format != STRAIT_CORPUS_SHARD) return STRAIT_OK;
    STRAIT_TRY(strait_beside_find(&corpus->beside, path, &entry, &has_entry));
    return has_entry ? compare_entry(corpus, &entry, corpus->beside.path) : STRAIT_OK;
}

/* The ending decides: manifests and shards are given under one option. */
static strait_err add_file(struct strait_corpus *corpus, const char *path) {
    if (ends_with(path, ".parquet")) return strait_input_refuse_parquet(path);
    return ends_with(path, ".json") ? add_manifest(corpus, path) : add_alone(corpus, path);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* glob's own order depends on the language of the user, and the order of shards is part of a run.
 */
static strait_err add_matching(struct strait_corpus *corpus, const char *pattern) {
    glob_t found = {0};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): only with a tilde, which is not expanded here
    const int result = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    strait_err err = STRAIT_OK;
    if (result == GLOB_NOSPACE)
        err = STRAIT_FAIL(STRAIT_ENOMEM, "%s: names of files", pattern);
    else if (result != 0)
        err = STRAIT_FAIL(STRAIT_EIO, "%s: no file matches this pattern", pattern);
    if (err == STRAIT_OK) qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    for (size_t i = 0; err == STRAIT_OK && i < found.gl_pathc; i++)
        err = add_file(corpus, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

/* A file that is named like a pattern is that file. */
static strait_err add_named(struct strait_corpus *corpus, const char *name) {
    if (strpbrk(name, "*?[") != NULL && access(name, F_OK) != 0) return add_matching(corpus, name);
    return add_file(corpus, name);
}

/* Opens everything in a list with commas. */
static strait_err add_listed(struct strait_corpus *corpus) {
    for (const char *at = corpus->name;; at++) {
        const size_t length = strcspn(at, ",");
        char path[STRAIT_PATH_MAX];
        if (length == 0)
            return STRAIT_FAIL(STRAIT_ECONFIG, "data \"%s\": an empty name in the list",
                               corpus->name);
        STRAIT_TRY(strait_file_path(path, "%.*s", (int)length, at));
        STRAIT_TRY(add_named(corpus, path));
        at += length;
        if (*at == '\0') return STRAIT_OK;
    }
}

strait_err strait_corpus_open(const char *path, struct strait_corpus **out) {
    return strait_corpus_open_as(path, STRAIT_CORPUS_SHARD, out);
}

strait_err strait_corpus_open_as(const char *path, strait_corpus_format format,
                                 struct strait_corpus **out) {
    struct strait_corpus *corpus = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *corpus, "corpus", (void **)&corpus));
    corpus->format = format;
    strait_err err = strait_alloc_string(path, &corpus->name);
    if (err == STRAIT_OK) err = add_listed(corpus);
    strait_beside_fini(&corpus->beside);
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

strait_err strait_corpus_pack(struct strait_corpus *corpus, int64_t context) {
    for (int i = 0; i < corpus->n_shards; i++)
        STRAIT_TRY(strait_packing_fill(&corpus->shards[i], context));
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
                                .n_shards = corpus->n_shards,
                                .n_documents = corpus->n_documents};
}

void strait_corpus_describe_shard(const struct strait_corpus *corpus, int i,
                                  strait_corpus_shard_info *out) {
    *out = (strait_corpus_shard_info){.path = corpus->paths[i],
                                      .n_tokens = corpus->shards[i].n_tokens,
                                      .hash = corpus->hashes[i],
                                      .id_bytes = corpus->shards[i].id_bytes};
}
