/* bpe.h - merging the symbols of one word. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/tokenizer/internal.h"

typedef struct strait_bpe_symbol {
    int32_t id;
    int32_t previous, next; // -1: none
} strait_bpe_symbol;

typedef struct strait_bpe_entry {
    uint64_t order; // rank << 32 | place: the lowest rank first, then the leftmost
    int32_t left, right, id;
} strait_bpe_entry;

/* Memory that one thread reuses between words. */
struct strait_bpe {
    strait_bpe_symbol *symbols;
    strait_bpe_entry *heap;
    size_t symbol_capacity, heap_capacity, n_heap;
};

void strait_bpe_fini(struct strait_bpe *bpe);

/* Merges ids[0..*n), at least one, in place. Words of any length, in n log n. */
strait_err strait_bpe_merge(struct strait_bpe *bpe, const struct strait_merges *merges,
                            int32_t *ids, size_t *n);
