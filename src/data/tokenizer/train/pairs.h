/* pairs.h - neighbouring symbols in the words of a text, how often each pair occurs and where.
 *
 * The heart of learning: the most frequent pair is found and merged, and only the words that hold
 * it are looked at again. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/train/word_counts.h"

#include <stddef.h>
#include <stdint.h>

struct strait_pairs;

/* Spells every word by first_ids[byte]. Copies what it needs. */
strait_err strait_pairs_open(const struct strait_word_counts *words, const int32_t first_ids[256],
                             struct strait_pairs **out);
void strait_pairs_close(struct strait_pairs **pairs); // accepts NULL

typedef struct strait_pair {
    int32_t left, right;
    int64_t count;
} strait_pair;

/* The most frequent pair, of equals the one with the smaller left and then right; count 0 when
 * there is none. */
strait_err strait_pairs_best(struct strait_pairs *pairs, strait_pair *out);

/* Makes `id` of every occurrence of the pair. */
strait_err strait_pairs_merge(struct strait_pairs *pairs, strait_pair pair, int32_t id);
