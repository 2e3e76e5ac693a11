#include "data/tokenizer/train/words.h"

#include "base/alloc.h"

void strait_words_fini(struct strait_words *words) {
    strait_alloc_free(words->blob.data);
    strait_alloc_free(words->slots);
    *words = (struct strait_words){0};
}

static strait_err widen(struct strait_words *words) {
    const size_t n_slots = words->n_slots == 0 ? 1 << 16 : words->n_slots * 2;
    strait_word *slots = NULL;
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

strait_err strait_words_add(struct strait_words *words, const unsigned char *word, size_t n,
                            int64_t count) {
    if (words->n_used * 2 >= words->n_slots) STRAIT_TRY(widen(words));
    const uint64_t hash = strait_buffer_hash(word, n);
    size_t at = hash & (words->n_slots - 1);
    for (; words->slots[at].count != 0; at = (at + 1) & (words->n_slots - 1)) {
        strait_word *slot = &words->slots[at];
        if (slot->hash != hash || slot->n != n) continue;
        if (memcmp(words->blob.data + slot->at, word, n) != 0) continue;
        slot->count += count;
        return STRAIT_OK;
    }
    const strait_word slot = {hash, words->blob.n, (uint32_t)n, count};
    STRAIT_TRY(strait_buffer_append(&words->blob, word, n));
    words->slots[at] = slot;
    words->n_used++;
    return STRAIT_OK;
}

strait_err strait_words_join(struct strait_words *words, const struct strait_words *from) {
    for (size_t i = 0; i < from->n_slots; i++) {
        const strait_word *slot = &from->slots[i];
        if (slot->count == 0) continue;
        STRAIT_TRY(strait_words_add(words, from->blob.data + slot->at, slot->n, slot->count));
    }
    return STRAIT_OK;
}
