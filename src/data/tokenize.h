/* tokenize.h - files of text to token shards and their manifest. */
#pragma once

#include "base/error.h"
#include "base/file.h"
#include "data/text.h"
#include "data/tokenizer.h"

#include <stdint.h>

typedef struct strait_tokenize_counts {
    int64_t documents, bytes, tokens, shards;
    int64_t dropped;      // characters without a token
    int64_t taken, total; // bytes of the files read, and of all; total 0: unknown
} strait_tokenize_counts;

typedef struct strait_tokenize_spec {
    const struct strait_tokenizer *tokenizer;
    strait_text_spec text; // piece_bytes is chosen here
    const char *out;       // NAME.bin; its manifest is NAME.json
    int64_t shard_tokens;  // 0: all in NAME.bin; otherwise NAME-00000.bin and on
    int n_threads;         // 0: one per core
    int32_t end;           // the token after every document; -1: none
    void (*progress)(void *arg, const strait_tokenize_counts *counts); // NULL: none
    void *arg;
} strait_tokenize_spec;

/* The path of the manifest that belongs to NAME.bin. */
strait_err strait_tokenize_manifest(const char *out, char path[STRAIT_PATH_MAX]);

/* The path of a shard: NAME.bin, or NAME-00000.bin with shard_tokens. */
strait_err strait_tokenize_shard(const strait_tokenize_spec *spec, int64_t index,
                                 char path[STRAIT_PATH_MAX]);

/* Writes shards and manifest. The ids are the same for any number of threads. On error, or when
 * spec->text.stop asks for an end (STRAIT_EINTERRUPTED), the shards that were complete may be left,
 * without a manifest; what was half written is removed. Documents without text leave nothing.
 * Begins by removing what a process that was killed left half written under the same names. */
strait_err strait_tokenize_run(const strait_tokenize_spec *spec, strait_tokenize_counts *out);
