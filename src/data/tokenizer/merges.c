#include "data/tokenizer/merges.h"

#include "base/alloc.h"

/* A table of at least twice the merges, so that searches end after few steps. */
strait_err strait_merges_init(struct strait_merges *merges, size_t n_expected) {
    size_t n_slots = 16;
    while (n_slots < n_expected * 2)
        n_slots *= 2;
    STRAIT_TRY(
        strait_alloc(n_slots, sizeof *merges->slots, "merge table", (void **)&merges->slots));
    merges->n_slots = n_slots;
    for (size_t i = 0; i < n_slots; i++)
        merges->slots[i].id = -1;
    return STRAIT_OK;
}

/* A zeroed table is closed. */
void strait_merges_fini(struct strait_merges *merges) {
    strait_alloc_free(merges->slots);
    *merges = (struct strait_merges){0};
}

/* A pair that occurs twice keeps its last rank, as in Hugging Face. */
void strait_merges_put(struct strait_merges *merges, int32_t left, int32_t right, uint32_t rank,
                       int32_t id) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = strait_merges_slot(merges, pair);
    while (merges->slots[at].id >= 0 && merges->slots[at].pair != pair)
        at = (at + 1) & (merges->n_slots - 1);
    if (merges->slots[at].id < 0) merges->n_used++;
    merges->slots[at] = (strait_merge){pair, rank, id};
}
