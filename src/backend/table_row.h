/* table_row.h - which row of a table a token id has, where a table has fewer rows than there are
 * token ids.
 *
 * Ids below the number of rows have the row of that number: in a vocabulary that was learned by
 * merges they are the frequent ones. All other ids share the last quarter of the rows by a fixed
 * hash (the finalizer of MurmurHash3), so every device, and every other program, finds the same
 * row. Shared by C and CUDA. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
    #define STRAIT_TABLE_ROW static __host__ __device__ inline
#else
    #define STRAIT_TABLE_ROW static inline
#endif

/* The row of token `id`, not negative, in a table of n_rows rows, at least 1. */
STRAIT_TABLE_ROW int32_t strait_table_row(int32_t id, int64_t n_rows) {
    if (id < n_rows) return id;
    const int64_t n_shared = n_rows < 4 ? 1 : n_rows / 4;
    uint32_t hash = (uint32_t)id;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    hash ^= hash >> 16;
    return (int32_t)(n_rows - n_shared + (int64_t)hash % n_shared);
}

#ifdef __cplusplus
}
#endif
