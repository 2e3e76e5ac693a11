/* word_counts.h - how often each pre-tokenised word occurs in a text: a hash table from the bytes
 * of a word to its count. Each thread fills a table of its own; they are added together at the end.
 */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_word_count {
    uint64_t hash;
    size_t at;     // offset of the word in `blob`
    uint32_t n;    // bytes
    int64_t count; // 0: the slot is free
} strait_word_count;

/* Zeroed: empty. */
struct strait_word_counts {
    strait_buffer blob; // bytes of all words
    strait_word_count *slots;
    size_t n_slots, n_used;
};

void strait_word_counts_fini(struct strait_word_counts *words); // accepts a zeroed table

/* Adds `count` > 0 occurrences of a word of n bytes. STRAIT_ENOMEM. */
strait_err strait_word_counts_add(struct strait_word_counts *words, const unsigned char *word,
                                  size_t n, int64_t count);

/* Adds all counts of `from`. */
strait_err strait_word_counts_join(struct strait_word_counts *words,
                                   const struct strait_word_counts *from);
