/* cache.h - the ids of words seen before: most text is few words, often. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_CACHE_WORD_MAX = 48 // longer words are not kept
};

typedef struct strait_cache_slot {
    uint64_t hash;
    uint32_t word, ids; // places in the two stores
    uint16_t n_word;    // 0: free
    uint16_t n_ids;
} strait_cache_slot;

struct strait_cache {
    strait_cache_slot *slots;
    size_t n_used;
    strait_buffer words;
    strait_ids ids;
};

strait_err strait_cache_init(struct strait_cache *cache);
void strait_cache_fini(struct strait_cache *cache);

/* The ids of a word, borrowed until the next put; NULL when it is not there. */
const int32_t *strait_cache_find(const struct strait_cache *cache, const unsigned char *word,
                                 size_t n, uint64_t hash, size_t *n_ids);

/* Keeps a word; empties the whole cache first when it is full, which bounds its memory. */
strait_err strait_cache_put(struct strait_cache *cache, const unsigned char *word, size_t n,
                            uint64_t hash, const int32_t *ids, size_t n_ids);
