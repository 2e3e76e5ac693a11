/* bpe.h - byte-pair encoding of one word: applies the merges of a tokenizer to its symbols.
 *
 * The pair of lowest rank is merged first, the leftmost of equal ones, until no pair can be merged.
 * Short words are scanned; long words use a heap over a linked list. Both give the same ids. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"
#include "data/tokenizer/internal.h"

/* A symbol of a long word, in a doubly linked list. */
typedef struct strait_bpe_symbol {
    int32_t id;             // -1: merged into the symbol before it
    int32_t previous, next; // indices; -1 at the ends
} strait_bpe_symbol;

/* A merge that may be applied. It is out of date once either symbol has changed. */
typedef struct strait_bpe_entry {
    uint64_t order;          // rank << 32 | index of the left symbol: the heap's key
    int32_t left, right, id; // both symbols when the entry was queued, and the merged one
} strait_bpe_entry;

/* Scratch memory that one thread reuses between words. Zeroed: empty. */
struct strait_bpe {
    strait_bpe_symbol *symbols;
    strait_bpe_entry *heap;
    size_t symbol_capacity, heap_capacity, n_heap;
};

/* Releases the memory. Accepts a zeroed struct. */
void strait_bpe_fini(struct strait_bpe *bpe);

/* Merges ids[0..*n), *n >= 1, in place and updates *n. O(n log n) for words of any length.
 * STRAIT_ENOMEM only for long words. */
strait_err strait_bpe_merge(struct strait_bpe *bpe, const struct strait_merges *merges,
                            int32_t *ids, size_t *n);
