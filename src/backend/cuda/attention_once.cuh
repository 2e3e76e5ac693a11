/* attention_once.cuh - what the passes of k_attention_once.cu and k_attention_once_ends.cu share:
 * the sums of d_q and their unit. */
#pragma once

#include "backend/cuda/attention_back.cuh"

constexpr int GROUP_ROWS = 64; // queries of a tile of sums
constexpr int KEYS = STRAIT_ATTENTION_ONCE_KEYS;
constexpr int SUMS = GROUP_ROWS * GROUP_ROWS; // integers of 64 columns of a tile of d_q

/* The power of two by which a query's d_q becomes integers, and its inverse: NaN where the bound is
 * not a number. */
struct unit {
    int exponent; // biased, of the bound

    __device__ __forceinline__ void init(float bound) {
        exponent = max((int)(__float_as_uint(bound) >> 23), 30);
    }
    /* |d_q| times this is below 2^29. */
    __device__ __forceinline__ float per() const {
        return __uint_as_float((uint32_t)(282 - exponent) << 23);
    }
    __device__ __forceinline__ float size() const {
        return exponent == 255 ? NAN : __uint_as_float((uint32_t)(exponent - 28) << 23);
    }
};

/* max |k| max |v|, twice. */
__device__ __forceinline__ float bound_of(const strait_attention_args &a, int sequence,
                                          int key_head) {
    const uint32_t *most = a.most + 2 * ((int64_t)sequence * a.n_key + key_head);
    return 2 * __uint_as_float(most[0]) * sqrtf(__uint_as_float(most[1]));
}

/* Where the sums of a tile of 64 queries are: PANELS tiles of integers. */
template <int PANELS>
__device__ __forceinline__ int *sums_of(const strait_attention_args &a, int sequence, int head,
                                        int tile) {
    const int tiles = (a.seq_len + KEYS - 1) / KEYS * (KEYS / GROUP_ROWS);
    return a.sums + (((int64_t)sequence * a.n_query + head) * tiles + tile) * PANELS * SUMS;
}
