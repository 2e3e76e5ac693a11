/* tokenize.h - files of text to token shards and their manifest. */
#pragma once

#include "base/error.h"
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

/* Writes shards and manifest, through a draft (data/draft.h): all of it comes to its place at the
 * end, and replaces a corpus of that name. The ids are the same for any number of threads. On
 * error, or when spec->text.stop asks for an end (STRAIT_EINTERRUPTED), nothing is left and nothing
 * that was there is touched. Documents without text leave nothing. */
strait_err strait_tokenize_run(const strait_tokenize_spec *spec, strait_tokenize_counts *out);
