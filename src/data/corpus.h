/* corpus.h - the token shards of one run, read as one.
 *
 * What a run file calls `data:` is a shard (train.bin), several with commas between them
 * (a.bin,b.bin), or the manifest that "strait tokenize" writes beside its shards (train.json).
 * All shards must agree on vocabulary and tokenizer where they state them. */
#pragma once

#include <strait/corpus.h>

#include "base/error.h"
#include "data/shard.h"

#include <stdint.h>

struct strait_corpus {
    char *name; // as it was asked for
    struct strait_shard *shards;
    char **paths;
    char (*hashes)[STRAIT_HASH_TEXT]; // of whole files, from the manifest; empty: unknown
    int n_shards;
    int64_t n_tokens;
    int64_t vocab;                    // ids lie below it; 0: unknown
    char tokenizer[STRAIT_HASH_TEXT]; // fingerprint; empty: unknown
};

/* Ids must lie below `vocab` from now on. STRAIT_EDATA when the shards were made for a larger
 * vocabulary or, `tokenizer` not being NULL, with a tokenizer of another fingerprint. */
strait_err strait_corpus_expect(struct strait_corpus *corpus, int64_t vocab, const char *tokenizer);

/* What a manifest says. */
typedef struct strait_corpus_shard {
    const char *path;
    int64_t n_tokens;
} strait_corpus_shard;
typedef struct strait_corpus_spec {
    const strait_corpus_shard *shards;
    int n_shards;
    int64_t vocab;
    const char *tokenizer; // fingerprint; NULL: unknown
    const char *const *sources;
    int n_sources;
} strait_corpus_spec;

/* Writes a manifest for shards that lie in its own folder; hashes them first. */
strait_err strait_corpus_write_manifest(const char *path, const strait_corpus_spec *spec);
