/* pairs.h - counts of adjacent symbol pairs in the words of a text, kept up to date while pairs are
 * merged.
 *
 * This is the core of BPE training: find the most frequent pair, merge it everywhere, repeat. An
 * index from pairs to words makes a merge touch only the words that contain the pair. */
#pragma once

#include "base/error.h"
#include "data/tokenizer/train/word_counts.h"

#include <stddef.h>
#include <stdint.h>

struct strait_pairs;

/* Starts with every word as a sequence of first_ids[byte]. Copies the words. STRAIT_EDATA: too many
 * different words. */
strait_err strait_pairs_open(const struct strait_word_counts *words, const int32_t first_ids[256],
                             struct strait_pairs **out);
void strait_pairs_close(struct strait_pairs **pairs); // accepts NULL in *pairs

typedef struct strait_pair {
    int32_t left, right;
    int64_t count; // occurrences in the text
} strait_pair;

/* Finds the most frequent pair; of equally frequent ones, that with the smaller left and then the
 * smaller right symbol, which makes training deterministic. count is 0 if no pair is left. */
strait_err strait_pairs_best(struct strait_pairs *pairs, strait_pair *out);

/* Replaces every occurrence of the pair by `id` and updates all counts. */
strait_err strait_pairs_merge(struct strait_pairs *pairs, strait_pair pair, int32_t id);
