/* merges.h - the merge table of byte-pair encoding: a hash table from a pair of tokens to the rank
 * of its merge and the resulting token.
 *
 * The table is filled once, while the tokenizer is opened; after that any thread may read it. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_merge {
    uint64_t pair; // left << 32 | right
    uint32_t rank; // merges of lower rank are applied first
    int32_t id;    // the resulting token
} strait_merge;

struct strait_merges {
    strait_merge *slots; // open addressing; id is -1 in free slots
    size_t n_slots, n_used;
};

/* Allocates a table for at most n_expected pairs. STRAIT_ENOMEM. */
strait_err strait_merges_init(struct strait_merges *merges, size_t n_expected);
void strait_merges_fini(struct strait_merges *merges);

/* Adds a pair. One that is already present gets the new rank and id, as in Hugging Face's table. */
void strait_merges_put(struct strait_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       int32_t id);

/* The first slot to probe for a pair. */
static inline size_t strait_merges_slot(const struct strait_merges *merges, uint64_t pair) {
    const uint64_t hash = (pair ^ pair >> 29) * 0xff51afd7ed558ccdu;
    return (size_t)(hash >> 32) & (merges->n_slots - 1);
}

/* The merge of a pair, or NULL. Inline because encoding spends most of its time here. */
static inline const strait_merge *strait_merges_find(const struct strait_merges *merges,
                                                     int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = strait_merges_slot(merges, pair);
    for (; merges->slots[at].id >= 0; at = (at + 1) & (merges->n_slots - 1))
        if (merges->slots[at].pair == pair) return &merges->slots[at];
    return NULL;
}
