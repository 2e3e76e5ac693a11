/* corpus.h - token shards: write them from text, and read them.
 *
 * A corpus is what a run file names under `data:`: one shard (train.bin), a pattern
 * (shards/x-?.bin), the manifest that strait_tokenize_run writes beside its shards (train.json), or
 * several of these with commas between them (a.bin,b.bin). */
#pragma once

#include <strait/error.h>
#include <strait/text.h>
#include <strait/tokenizer.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What tokenizing has read and written so far. */
typedef struct strait_tokenize_counts {
    int64_t documents, bytes, tokens, shards;
    int64_t trained;     // of a chat: tokens that are targets
    int64_t dropped;     // characters without a token; known at the end
    int64_t bytes_read;  // of the input files, compressed where they are
    int64_t bytes_total; // of all input files; 0: unknown
} strait_tokenize_counts;

/* What to tokenize and where to write it. Borrowed until strait_tokenize_run returns. */
typedef struct strait_tokenize_spec {
    const struct strait_tokenizer *tokenizer;
    strait_text_spec text;
    const char *out;            // NAME.bin; its manifest is NAME.json
    int64_t shard_tokens;       // 0: all tokens in NAME.bin; otherwise NAME-00000.bin and so on
    int n_threads;              // 0: one per core
    int32_t end;                // the token to put after every document; -1: none
    int keeps_old;              // refuse to replace a corpus of that name
    const char *tokenizer_path; // a file that must not be overwritten; NULL: none
    void (*progress)(void *arg, const strait_tokenize_counts *counts); // may be NULL
    void *arg;
} strait_tokenize_spec;

/* Tokenizes text into shards and a manifest. They are written to NAME.bin.tmp/ and moved into place
 * together at the end. The ids are the same for any number of threads. On error, or when
 * spec->text.stop asks for an end (STRAIT_EINTERRUPTED), nothing is left and existing files are
 * untouched. STRAIT_EEXISTS: the corpus exists and keeps_old is set. STRAIT_ECONFIG: writing it
 * would replace an input. `progress` is called from the calling thread. */
STRAIT_API strait_err strait_tokenize_run(const strait_tokenize_spec *spec,
                                          strait_tokenize_counts *out);

struct strait_corpus;

/* What a corpus holds. Strings are borrowed until close. */
typedef struct strait_corpus_info {
    int64_t n_tokens;
    int64_t vocab;         // ids are smaller; 0: unknown
    const char *tokenizer; // fingerprint; empty: unknown
    int n_shards;
    int64_t n_documents; // of fine-tuning data; 0: text without bounds
} strait_corpus_info;

typedef struct strait_corpus_shard_info {
    const char *path; // borrowed until close
    int64_t n_tokens;
    int id_bytes;     // per token: 2 or 4
    const char *hash; // of the file, as its manifest says; empty: no manifest lists it
} strait_corpus_shard_info;

/* Opens a corpus and checks the headers of all shards; reads no token. All shards must agree on
 * vocabulary and tokenizer where they state them. A shard that is named itself is compared with the
 * manifest beside it, if there is one: NAME.json for NAME.bin and NAME-00000.bin. STRAIT_EDATA: a
 * file is damaged or not a shard, or its length is not that of the manifest.
 * Afterwards any number of threads may read. */
STRAIT_API strait_err strait_corpus_open(const char *path, struct strait_corpus **out);

/* What a file without the header of a shard is (data.format). */
typedef enum strait_corpus_format {
    STRAIT_CORPUS_SHARD,  // an error
    STRAIT_CORPUS_UINT16, // nothing but token ids of two bytes, little-endian, as nanoGPT has them
    STRAIT_CORPUS_UINT32, // the same of four bytes
} strait_corpus_format;

/* Like strait_corpus_open, for files of other programs. Raw files state neither vocabulary nor
 * tokenizer. */
STRAIT_API strait_err strait_corpus_open_as(const char *path, strait_corpus_format format,
                                            struct strait_corpus **out);
STRAIT_API void strait_corpus_close(struct strait_corpus **corpus); // accepts NULL in *corpus

/* Describes the corpus, and its i-th shard with 0 <= i < n_shards. */
STRAIT_API void strait_corpus_describe(const struct strait_corpus *corpus, strait_corpus_info *out);
STRAIT_API void strait_corpus_describe_shard(const struct strait_corpus *corpus, int i,
                                             strait_corpus_shard_info *out);

/* Copies tokens [first, first + n) of all shards laid end to end. STRAIT_EINVAL: they are outside
 * the corpus. STRAIT_EDATA: an id is outside the vocabulary. */
STRAIT_API strait_err strait_corpus_read(const struct strait_corpus *corpus, int64_t first,
                                         int64_t n, int32_t *out);

/* Reads everything and compares hashes with the manifests and ids with the vocabulary. STRAIT_EDATA
 * names the first file that differs. */
STRAIT_API strait_err strait_corpus_verify(const struct strait_corpus *corpus);

#ifdef __cplusplus
}
#endif
