/* write.h - a byte-level tokenizer while it is learned, and its file. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

#include <stdint.h>

struct strait_new_tokenizer {
    struct strait_vocab vocab; // keys are bytes
    const char *pattern;       // split pattern; NULL: the one ByteLevel has by itself
    int32_t byte_ids[256];
    int n_specials;
    strait_ids merges; // left, right, left, right, ...
};

/* The special tokens, then the 256 bytes. `pattern` is "gpt2", "llama3" or NULL. STRAIT_ECONFIG
 * for a pattern or special token that will not do. */
strait_err strait_new_tokenizer_init(struct strait_new_tokenizer *made, const char *pattern,
                                     const char *const *specials, int n_specials);
void strait_new_tokenizer_fini(struct strait_new_tokenizer *made); // accepts a zeroed one

/* Records a merge. A text that already has an id keeps it. */
strait_err strait_new_tokenizer_merge(struct strait_new_tokenizer *made, int32_t left,
                                      int32_t right, int32_t *id);

/* The tokenizer as it stands. */
strait_err strait_new_tokenizer_open(const struct strait_new_tokenizer *made,
                                     struct strait_tokenizer **out);

strait_err strait_new_tokenizer_write(const struct strait_new_tokenizer *made, const char *path);
