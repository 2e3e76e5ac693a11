/* buffer.h - memory that grows: bytes, and token ids. Both start as zeros and are released with
 * strait_alloc_free(x.data). */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct strait_buffer {
    unsigned char *data;
    size_t n, capacity;
} strait_buffer;

typedef struct strait_ids {
    int32_t *data;
    size_t n, capacity;
} strait_ids;

/* Room for `want` items of `size` bytes; at least doubles what is there. */
strait_err strait_buffer_reserve(void **memory, size_t *capacity, size_t want, size_t size);

/* After it bytes->data is not NULL, whatever n is. */
strait_err strait_buffer_append(strait_buffer *bytes, const void *data, size_t n);

static inline strait_err strait_ids_append(strait_ids *ids, const int32_t *data, size_t n) {
    if (ids->n + n > ids->capacity)
        STRAIT_TRY(strait_buffer_reserve((void **)&ids->data, &ids->capacity, ids->n + n,
                                         sizeof *ids->data));
    if (n > 0) memcpy(ids->data + ids->n, data, n * sizeof *data);
    ids->n += n;
    return STRAIT_OK;
}

/* A hash of short strings for tables in memory; differs between machines of other byte order. */
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
