#include "data/tokenizer/cache.h"

#include "base/alloc.h"

enum {
    N_SLOTS = 1 << 17,    // a power of two, so that a mask replaces the remainder
    N_WORDS = N_SLOTS / 2 // at half load, probe sequences stay short
};

strait_err strait_cache_init(struct strait_cache *cache) {
    return strait_alloc(N_SLOTS, sizeof *cache->slots, "word cache", (void **)&cache->slots);
}

void strait_cache_fini(struct strait_cache *cache) {
    strait_alloc_free(cache->slots);
    strait_alloc_free(cache->words.data);
    strait_alloc_free(cache->ids.data);
    *cache = (struct strait_cache){0};
}

/* The hash is compared before the bytes, because most probes of a full table miss. */
const int32_t *strait_cache_find(const struct strait_cache *cache, const unsigned char *word,
                                 size_t n, uint64_t hash, size_t *n_ids) {
    for (size_t at = hash & (N_SLOTS - 1);; at = (at + 1) & (N_SLOTS - 1)) {
        const strait_cache_slot *slot = &cache->slots[at];
        if (slot->n_word == 0) return NULL;
        if (slot->hash != hash || slot->n_word != n) continue;
        if (memcmp(cache->words.data + slot->word, word, n) != 0) continue;
        *n_ids = slot->n_ids;
        return cache->ids.data + slot->ids;
    }
}

/* A full cache is emptied as a whole: frequent words return at once, and no bookkeeping is needed.
 */
strait_err strait_cache_put(struct strait_cache *cache, const unsigned char *word, size_t n,
                            uint64_t hash, const int32_t *ids, size_t n_ids) {
    if (cache->n_used == N_WORDS) {
        memset(cache->slots, 0, N_SLOTS * sizeof *cache->slots);
        cache->n_used = cache->words.n = cache->ids.n = 0;
    }
    const strait_cache_slot slot = {hash, (uint32_t)cache->words.n, (uint32_t)cache->ids.n,
                                    (uint16_t)n, (uint16_t)n_ids};
    STRAIT_TRY(strait_buffer_append(&cache->words, word, n));
    STRAIT_TRY(strait_ids_append(&cache->ids, ids, n_ids));
    size_t at = hash & (N_SLOTS - 1);
    while (cache->slots[at].n_word != 0)
        at = (at + 1) & (N_SLOTS - 1);
    cache->slots[at] = slot;
    cache->n_used++;
    return STRAIT_OK;
}
