/* corpus.h - the token shards of one run, read as one.
 *
 * What a run file calls `data:` is a shard (train.bin), a pattern as a shell has it (shards/x?.bin;
 * its files in the order of their bytes), the manifest that "strait tokenize" writes beside its
 * shards (train.json), or several of these with commas between them (a.bin,b.bin).
 * All shards must agree on vocabulary and tokenizer where they state them. <strait/corpus.h> has
 * the functions that open, read and verify a corpus; this header adds what only the library uses.
 */
#pragma once

#include <strait/corpus.h>

#include "base/error.h"
#include "data/beside.h"
#include "data/shard.h"

#include <stdint.h>

struct strait_corpus {
    char *name; // as the caller of strait_corpus_open spelled it; used in errors
    struct strait_shard *shards;
    char **paths;                     // owned; the shards borrow them
    char (*hashes)[STRAIT_HASH_TEXT]; // of whole files, from the manifest; empty if unknown
    int n_shards;
    size_t capacity[3];          // of shards, paths and hashes
    struct strait_beside beside; // while the shards are opened
    strait_corpus_format format;
    int64_t n_tokens;
    int64_t n_documents;              // of shards of documents; 0: text without bounds
    int64_t vocab;                    // every id is smaller; 0 if unknown
    char tokenizer[STRAIT_HASH_TEXT]; // fingerprint; empty if unknown
};

/* Declares the vocabulary of the model: from now on, reading an id of `vocab` or more fails.
 * STRAIT_EDATA if the shards were written for a larger vocabulary or, if `tokenizer` is not NULL,
 * with a tokenizer of another fingerprint. Call it before other threads read the corpus. */
strait_err strait_corpus_expect(struct strait_corpus *corpus, int64_t vocab, const char *tokenizer);

/* Packs documents into rows of the context (packing.h); does nothing without documents. Call it
 * before a sampler of the corpus is made. */
strait_err strait_corpus_pack(struct strait_corpus *corpus, int64_t context);

/* STRAIT_EDATA names the first shard that is shorter than when it was opened. Reads no token: one
 * call per step costs a microsecond per shard. Any thread. */
strait_err strait_corpus_check(const struct strait_corpus *corpus);

/* One shard as the manifest lists it. */
typedef struct strait_corpus_shard {
    const char *path;
    int64_t n_tokens;
} strait_corpus_shard;

/* The contents of a manifest. All pointers are borrowed for the call. */
typedef struct strait_corpus_spec {
    const strait_corpus_shard *shards;
    int n_shards;
    int64_t vocab;
    const char *tokenizer;      // fingerprint; NULL if unknown
    const char *const *sources; // names of the text files, for information only
    int n_sources;
} strait_corpus_spec;

/* Writes a manifest for shards in the same folder. Reads every shard to hash it. The file is
 * replaced atomically. STRAIT_EIO: a shard cannot be read or the manifest cannot be written. */
strait_err strait_corpus_write_manifest(const char *path, const strait_corpus_spec *spec);
