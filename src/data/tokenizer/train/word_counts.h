/* words.h - how often each word occurs. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_word_count {
    uint64_t hash;
    size_t at; // in blob
    uint32_t n;
    int64_t count; // 0: free slot
} strait_word_count;

struct strait_word_counts {
    strait_buffer blob;
    strait_word_count *slots;
    size_t n_slots, n_used;
};

void strait_word_counts_fini(struct strait_word_counts *words);

strait_err strait_word_counts_add(struct strait_word_counts *words, const unsigned char *word,
                                  size_t n, int64_t count);

/* Adds all of `from`. */
strait_err strait_word_counts_join(struct strait_word_counts *words,
                                   const struct strait_word_counts *from);
