#include "data/tokenizer/train/word_counts.h"

#include "base/alloc.h"

/* Accepts a table that was never used. */
void strait_word_counts_fini(struct strait_word_counts *words) {
    strait_alloc_free(words->blob.data);
    strait_alloc_free(words->slots);
    *words = (struct strait_word_counts){0};
}

/* Doubles the table. A slot with count 0 is free, so counts must be positive. */
static strait_err rehash(struct strait_word_counts *words) {
    const size_t n_slots = words->n_slots == 0 ? 1 << 16 : words->n_slots * 2;
    strait_word_count *slots = NULL;
    STRAIT_TRY(strait_alloc(n_slots, sizeof *slots, "word counts", (void **)&slots));
    for (size_t i = 0; i < words->n_slots; i++) {
        if (words->slots[i].count == 0) continue;
        size_t at = words->slots[i].hash & (n_slots - 1);
        while (slots[at].count != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = words->slots[i];
    }
    strait_alloc_free(words->slots);
    words->slots = slots;
    words->n_slots = n_slots;
    return STRAIT_OK;
}

/* Words are stored once in a blob, so that millions of them need no allocations of their own. */
strait_err strait_word_counts_add(struct strait_word_counts *words, const unsigned char *word,
                                  size_t n, int64_t count) {
    if (words->n_used * 2 >= words->n_slots) STRAIT_TRY(rehash(words));
    const uint64_t hash = strait_buffer_hash(word, n);
    size_t at = hash & (words->n_slots - 1);
    for (; words->slots[at].count != 0; at = (at + 1) & (words->n_slots - 1)) {
        strait_word_count *slot = &words->slots[at];
        if (slot->hash != hash || slot->n != n) continue;
        if (memcmp(words->blob.data + slot->at, word, n) != 0) continue;
        slot->count += count;
        return STRAIT_OK;
    }
    /* A new word: the probe ended at a free slot. */
    const strait_word_count slot = {hash, words->blob.n, (uint32_t)n, count};
    STRAIT_TRY(strait_buffer_append(&words->blob, word, n));
    words->slots[at] = slot;
    words->n_used++;
    return STRAIT_OK;
}

/* Called for the tables of all workers, in order; sums do not depend on that order. */
strait_err strait_word_counts_join(struct strait_word_counts *words,
                                   const struct strait_word_counts *from) {
    for (size_t i = 0; i < from->n_slots; i++) {
        const strait_word_count *slot = &from->slots[i];
        if (slot->count == 0) continue;
        STRAIT_TRY(strait_word_counts_add(words, from->blob.data + slot->at, slot->n, slot->count));
    }
    return STRAIT_OK;
}
