/* buffer.h - growable arrays of bytes and of token ids, and a hash for in-memory tables.
 *
 * A zeroed struct is an empty array. The owner releases the memory with strait_alloc_free(x.data).
 * Nothing here is synchronised: one thread uses an array at a time. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct strait_buffer {
    unsigned char *data;
    size_t n, capacity; // bytes in use, bytes allocated
} strait_buffer;

typedef struct strait_ids {
    int32_t *data;
    size_t n, capacity; // ids in use, ids allocated
} strait_ids;

/* Makes *capacity at least `want` items of `size` bytes. Growth at least doubles the capacity, so
 * that appending n items costs O(n). STRAIT_ENOMEM leaves *memory and *capacity unchanged. */
strait_err strait_buffer_reserve(void **memory, size_t *capacity, size_t want, size_t size);

/* Appends n bytes. Afterwards bytes->data is not NULL, even if n is 0, so that callers may pass it
 * to functions that reject NULL. */
strait_err strait_buffer_append(strait_buffer *bytes, const void *data, size_t n);

/* Appends n ids. Inline because the encoder calls it for every word. */
static inline strait_err strait_ids_append(strait_ids *ids, const int32_t *data, size_t n) {
    if (ids->n + n > ids->capacity)
        STRAIT_TRY(strait_buffer_reserve((void **)&ids->data, &ids->capacity, ids->n + n,
                                         sizeof *ids->data));
    if (n > 0) memcpy(ids->data + ids->n, data, n * sizeof *data);
    ids->n += n;
    return STRAIT_OK;
}

/* Hashes a short string for hash tables in memory. The result depends on the byte order of the
 * machine: never store or send it. */
static inline uint64_t strait_buffer_hash(const void *data, size_t n) {
    const unsigned char *at = data;
    uint64_t hash = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++)
        tail |= (uint64_t)at[i] << 8 * i;
    hash = (hash ^ tail) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 32;
}
