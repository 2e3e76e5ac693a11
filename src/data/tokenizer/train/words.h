/* words.h - how often each word occurs. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_word {
    uint64_t hash;
    size_t at; // in blob
    uint32_t n;
    int64_t count; // 0: free slot
} strait_word;

struct strait_words {
    strait_buffer blob;
    strait_word *slots;
    size_t n_slots, n_used;
};

void strait_words_fini(struct strait_words *words);

strait_err strait_words_add(struct strait_words *words, const unsigned char *word, size_t n,
                            int64_t count);

/* Adds all of `from`. */
strait_err strait_words_join(struct strait_words *words, const struct strait_words *from);
