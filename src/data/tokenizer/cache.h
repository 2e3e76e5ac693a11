/* cache.h - a cache from words to their token ids.
 *
 * Natural text repeats few distinct words, so most words are encoded by a lookup. Each encoder has
 * its own cache: no locks. */
#pragma once

#include "base/error.h"
#include "data/buffer.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_CACHE_WORD_MAX = 48 // bytes; longer words are rare and are not cached
};

typedef struct strait_cache_slot {
    uint64_t hash;
    uint32_t word, ids; // offsets into `words` and `ids` of the cache
    uint16_t n_word;    // bytes; 0: the slot is free
    uint16_t n_ids;
} strait_cache_slot;

struct strait_cache {
    strait_cache_slot *slots; // open addressing
    size_t n_used;
    strait_buffer words; // bytes of all cached words
    strait_ids ids;      // ids of all cached words
};

/* Allocates the slots. STRAIT_ENOMEM. */
strait_err strait_cache_init(struct strait_cache *cache);
void strait_cache_fini(struct strait_cache *cache); // accepts a zeroed cache

/* The ids of a word of at least one byte, borrowed until the next put; NULL if it is not cached.
 * `hash` is strait_buffer_hash of the word. */
const int32_t *strait_cache_find(const struct strait_cache *cache, const unsigned char *word,
                                 size_t n, uint64_t hash, size_t *n_ids);

/* Adds a word that is not in the cache. A full cache is emptied first, which bounds its memory and
 * needs no bookkeeping per lookup, as an eviction policy would. */
strait_err strait_cache_put(struct strait_cache *cache, const unsigned char *word, size_t n,
                            uint64_t hash, const int32_t *ids, size_t n_ids);
