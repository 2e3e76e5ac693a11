/* write.h - a byte-level tokenizer while it is learned, and its file. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

#include <stdint.h>

struct strait_tokenizer_builder {
    struct strait_vocab vocab; // keys are bytes
    const char *pattern;       // split pattern; NULL: the one ByteLevel has by itself
    int32_t byte_ids[256];
    int n_specials;
    strait_ids merges; // left, right, left, right, ...
};

/* The special tokens, then the 256 bytes. `pattern` is "gpt2", "llama3" or NULL. STRAIT_ECONFIG
 * for a pattern or special token that will not do. */
strait_err strait_tokenizer_builder_init(struct strait_tokenizer_builder *builder,
                                         const char *pattern, const char *const *specials,
                                         int n_specials);
void strait_tokenizer_builder_fini(
    struct strait_tokenizer_builder *builder); // accepts a zeroed one

/* Records a merge. A text that already has an id keeps it. */
strait_err strait_tokenizer_builder_merge(struct strait_tokenizer_builder *builder, int32_t left,
                                          int32_t right, int32_t *id);

/* The tokenizer as it stands. */
strait_err strait_tokenizer_builder_open(const struct strait_tokenizer_builder *builder,
                                         struct strait_tokenizer **out);

strait_err strait_tokenizer_builder_write(const struct strait_tokenizer_builder *builder,
                                          const char *path);
