/* merges.h - which two tokens become which third, and how soon. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct strait_merge {
    uint64_t pair; // left << 32 | right
    uint32_t rank; // lower merges first
    int32_t id;    // the token made
} strait_merge;

struct strait_merges {
    strait_merge *slots; // id is -1 where free
    size_t n_slots, n_used;
};

strait_err strait_merges_init(struct strait_merges *merges, size_t n_expected);
void strait_merges_fini(struct strait_merges *merges);

/* A pair that is there already gets the new rank and id. At most n_expected pairs. */
void strait_merges_put(struct strait_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       int32_t id);

static inline size_t strait_merges_slot(const struct strait_merges *merges, uint64_t pair) {
    const uint64_t hash = (pair ^ pair >> 29) * 0xff51afd7ed558ccdu;
    return (size_t)(hash >> 32) & (merges->n_slots - 1);
}

/* The merge of a pair, or NULL. Any thread. */
static inline const strait_merge *strait_merges_find(const struct strait_merges *merges,
                                                     int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = strait_merges_slot(merges, pair);
    for (; merges->slots[at].id >= 0; at = (at + 1) & (merges->n_slots - 1))
        if (merges->slots[at].pair == pair) return &merges->slots[at];
    return NULL;
}
