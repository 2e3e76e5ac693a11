/* tokenizer_train.h - learning a byte-level tokenizer from text. */
#pragma once

#include "base/error.h"
#include "data/text.h"

#include <stdint.h>

typedef struct strait_tokenizer_progress {
    int is_learning;     // 0: counting the words of the text
    int64_t done, total; // bytes of the files, or tokens; total 0: unknown
} strait_tokenizer_progress;

typedef struct strait_tokenizer_train_spec {
    strait_text_spec text; // piece_bytes is chosen here
    int32_t vocab;         // ids, with the 256 bytes and the special tokens
    const char *pattern;   // "gpt2" or "llama3"; NULL: gpt2
    const char *const *specials;
    int n_specials;
    int n_threads;       // 0: one per core
    int64_t limit_bytes; // learn from about so much text; 0: all
    void (*progress)(void *arg, const strait_tokenizer_progress *progress); // NULL: none
    void *arg;
} strait_tokenizer_train_spec;

/* Learns and writes a tokenizer.json to `path`. Special tokens come first, then the bytes in the
 * order of their characters in the file, then merges, the most frequent pair first and of equals
 * the one with the smaller ids. The same text gives the same file, whatever the threads and the
 * order of the files. Pairs seen once are not merged: *n_tokens may be less than asked for. */
strait_err strait_tokenizer_train(const strait_tokenizer_train_spec *spec, const char *path,
                                  int32_t *n_tokens);
