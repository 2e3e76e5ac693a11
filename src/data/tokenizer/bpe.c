#include "data/tokenizer/bpe.h"

#include "base/alloc.h"

enum {
    SHORT_SYMBOLS = 32 // below this length, scanning all pairs is faster than a heap
};

void strait_bpe_fini(struct strait_bpe *bpe) {
    strait_alloc_free(bpe->symbols);
    strait_alloc_free(bpe->heap);
    *bpe = (struct strait_bpe){0};
}

/* The definition of BPE: merge the pair of lowest rank, the leftmost of equal ones, until no pair
 * can be merged. O(n^2), which is fastest for short words. */
static void merge_short(const struct strait_merges *merges, int32_t *ids, size_t *n) {
    uint32_t ranks[SHORT_SYMBOLS];
    int32_t merged[SHORT_SYMBOLS];
    size_t count = *n;
    ranks[count - 1] = UINT32_MAX; // the last symbol has no pair
    merged[count - 1] = -1;
    for (size_t i = 0; i + 1 < count; i++) {
        const strait_merge *merge = strait_merges_find(merges, ids[i], ids[i + 1]);
        ranks[i] = merge != NULL ? merge->rank : UINT32_MAX;
        merged[i] = merge != NULL ? merge->id : -1;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == UINT32_MAX) break;
        ids[best] = merged[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        /* Only the pairs with the neighbours of the merged symbol have changed. */
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const strait_merge *merge = strait_merges_find(merges, ids[i], ids[i + 1]);
            ranks[i] = merge != NULL ? merge->rank : UINT32_MAX;
            merged[i] = merge != NULL ? merge->id : -1;
        }
    }
    *n = count;
}

static void sift_down(strait_bpe_entry *heap, size_t n, size_t at) {
    const strait_bpe_entry entry = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= entry.order) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

/* The heap keeps its memory from word to word. */
static strait_err push(struct strait_bpe *bpe, strait_bpe_entry entry) {
    STRAIT_TRY(strait_buffer_reserve((void **)&bpe->heap, &bpe->heap_capacity, bpe->n_heap + 1,
                                     sizeof *bpe->heap));
    size_t at = bpe->n_heap++;
    while (at > 0 && bpe->heap[(at - 1) / 2].order > entry.order) {
        bpe->heap[at] = bpe->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    bpe->heap[at] = entry;
    return STRAIT_OK;
}

/* The last entry fills the gap and sinks to its place. */
static strait_bpe_entry pop(struct strait_bpe *bpe) {
    const strait_bpe_entry top = bpe->heap[0];
    bpe->heap[0] = bpe->heap[--bpe->n_heap];
    if (bpe->n_heap > 0) sift_down(bpe->heap, bpe->n_heap, 0);
    return top;
}

/* Queues the merge of the symbol at `place` with the next one, if the pair can be merged. */
static strait_err queue_merge(struct strait_bpe *bpe, const struct strait_merges *merges,
                              int32_t place) {
    if (place < 0 || bpe->symbols[place].next < 0) return STRAIT_OK;
    const int32_t left = bpe->symbols[place].id;
    const int32_t right = bpe->symbols[bpe->symbols[place].next].id;
    const strait_merge *merge = strait_merges_find(merges, left, right);
    if (merge == NULL) return STRAIT_OK;
    const uint64_t order = (uint64_t)merge->rank << 32 | (uint32_t)place;
    return push(bpe, (strait_bpe_entry){order, left, right, merge->id});
}

/* Whether a queued merge still applies. Entries are not removed from the heap when a symbol
 * changes; they are skipped here instead. */
static int is_current(const struct strait_bpe *bpe, const strait_bpe_entry *entry, int32_t place) {
    const strait_bpe_symbol *symbol = &bpe->symbols[place];
    return symbol->id == entry->left && symbol->next >= 0 &&
           bpe->symbols[symbol->next].id == entry->right;
}

/* The same result as merge_short in O(n log n): the heap's key orders merges by rank, then by
 * position. */
static strait_err merge_long(struct strait_bpe *bpe, const struct strait_merges *merges, size_t n) {
    bpe->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        STRAIT_TRY(queue_merge(bpe, merges, (int32_t)i));
    while (bpe->n_heap > 0) {
        const strait_bpe_entry entry = pop(bpe);
        const int32_t place = (int32_t)(uint32_t)entry.order;
        if (!is_current(bpe, &entry, place)) continue;
        strait_bpe_symbol *symbol = &bpe->symbols[place];
        strait_bpe_symbol *absorbed = &bpe->symbols[symbol->next];
        symbol->id = entry.id;
        symbol->next = absorbed->next;
        absorbed->id = -1;
        if (symbol->next >= 0) bpe->symbols[symbol->next].previous = place;
        STRAIT_TRY(queue_merge(bpe, merges, symbol->previous));
        STRAIT_TRY(queue_merge(bpe, merges, place));
    }
    return STRAIT_OK;
}

strait_err strait_bpe_merge(struct strait_bpe *bpe, const struct strait_merges *merges,
                            int32_t *ids, size_t *n) {
    if (*n < SHORT_SYMBOLS) {
        merge_short(merges, ids, n);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_buffer_reserve((void **)&bpe->symbols, &bpe->symbol_capacity, *n,
                                     sizeof *bpe->symbols));
    for (size_t i = 0; i < *n; i++)
        bpe->symbols[i] = (strait_bpe_symbol){ids[i], (int32_t)i - 1,
                                              i + 1 < *n ? (int32_t)i + 1 : -1};
    STRAIT_TRY(merge_long(bpe, merges, *n));
    size_t count = 0;
    for (int32_t at = 0; at >= 0; at = bpe->symbols[at].next)
        ids[count++] = bpe->symbols[at].id;
    *n = count;
    return STRAIT_OK;
}
