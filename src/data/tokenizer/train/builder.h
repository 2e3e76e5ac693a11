/* builder.h - a byte-level BPE tokenizer under construction: tokens are added while it is trained,
 * then it is written as tokenizer.json. One thread uses it at a time. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

#include <stdint.h>

struct strait_tokenizer_builder {
    struct strait_vocab vocab; // keys are bytes
    const char *pattern;       // split pattern; NULL: GPT-2's, which ByteLevel implies
    int32_t byte_ids[256];     // the token of each byte
    int n_specials;            // they have the ids 0 to n_specials - 1
    strait_ids merges;         // left, right, left, right, ... in order of rank
};

/* Starts with the special tokens, then the 256 bytes. `pattern` is "gpt2", "llama3" or NULL.
 * STRAIT_ECONFIG: another pattern, or a special token that is repeated or not visible ASCII. */
strait_err strait_tokenizer_builder_init(struct strait_tokenizer_builder *builder,
                                         const char *pattern, const char *const *specials,
                                         int n_specials);
void strait_tokenizer_builder_fini(
    struct strait_tokenizer_builder *builder); // accepts a zeroed builder

/* Appends a merge. *id is the merged token: a new one, or the existing one if another merge already
 * gave the same bytes. */
strait_err strait_tokenizer_builder_merge(struct strait_tokenizer_builder *builder, int32_t left,
                                          int32_t right, int32_t *id);

/* Opens a tokenizer with the tokens and merges added so far. The caller closes it. */
strait_err strait_tokenizer_builder_open(const struct strait_tokenizer_builder *builder,
                                         struct strait_tokenizer **out);

/* Writes tokenizer.json; an existing file is replaced atomically. */
strait_err strait_tokenizer_builder_write(const struct strait_tokenizer_builder *builder,
                                          const char *path);
