/* payload.cuh - conversion of values to payload codes and back, on the device; the counterpart of
 * cpu/payload_value.h.
 *
 * Payload bytes are a format: every device must compute the same ones. Nothing here may be fused;
 * each sum and product is rounded by itself. */
#pragma once

#include "backend/cuda/vector.cuh"
#include "backend/kernels.h"

/* The value if it may be sent, else 0 and one more in *bad. The comparison is false for NaN. */
__device__ __forceinline__ float wire_value(float value, float *bad) {
    if (fabsf(value) <= STRAIT_WIRE_LIMIT) return value;
    *bad += 1.0f;
    return 0.0f;
}

/* The four random words of (seed, stream, counter): Philox 4x32-10, as in base/rng.c. */
__device__ __forceinline__ void wire_draw(uint32_t out[4], const strait_pack_params &params,
                                          uint64_t counter) {
    uint32_t key[2] = {(uint32_t)params.seed, (uint32_t)(params.seed >> 32)};
    uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)params.stream,
                     (uint32_t)(params.stream >> 32)};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ key[0];
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ key[1];
        x[3] = (uint32_t)a;
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = x[i];
}

/* The random words of values i to i + 3 of the tensor, which may span two counters. */
__device__ __forceinline__ void wire_words(uint32_t out[4], const strait_pack_params &params,
                                           int64_t i) {
    uint32_t w[7];
    wire_draw(w, params, (uint64_t)i / 4);
    if ((i & 3) != 0) {
        uint32_t next[4];
        wire_draw(next, params, (uint64_t)i / 4 + 1);
        w[4] = next[0];
        w[5] = next[1];
        w[6] = next[2];
    }
    const bool by1 = (i & 1) != 0, by2 = (i & 2) != 0;
#pragma unroll
    for (int k = 0; k < 6; k++)
        w[k] = by1 ? w[k + 1] : w[k];
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[k] = by2 ? w[k + 2] : w[k];
}

/* bf16 bits of a valid value: rounded to nearest, half to even, or stochastically. */
__device__ __forceinline__ uint32_t wire_half(float value, bool is_stochastic, uint32_t word) {
    const uint32_t bits = __float_as_uint(value);
    return (bits + (is_stochastic ? word >> 16 : 0x7fffu + (bits >> 16 & 1u))) >> 16;
}

__device__ __forceinline__ float wire_float(uint32_t half) {
    return __uint_as_float(half << 16);
}

/* Stores the low n <= 4 bytes of `word`; `to` may have any alignment. */
__device__ __forceinline__ void put_bytes(unsigned char *to, uint32_t word, int n) {
    if (n == 4 && ((uintptr_t)to & 3u) == 0) {
        *(uint32_t *)to = word;
    } else if (n == 2 && ((uintptr_t)to & 1u) == 0) {
        *(uint16_t *)to = (uint16_t)word;
    } else {
        for (int i = 0; i < n; i++)
            to[i] = (unsigned char)(word >> (8 * i));
    }
}

__device__ __forceinline__ uint32_t take_bytes(const unsigned char *from, int n) {
    if (n == 4 && ((uintptr_t)from & 3u) == 0) return *(const uint32_t *)from;
    if (n == 2 && ((uintptr_t)from & 1u) == 0) return *(const uint16_t *)from;
    uint32_t word = 0;
    for (int i = 0; i < n; i++)
        word |= (uint32_t)from[i] << (8 * i);
    return word;
}

/* This lane's row of a tensor and its index among the row's lanes. Lanes beyond the last row stay
 * active, because shuffles need them. */
struct row_lane {
    int64_t row, rows;
    int lane, n_lanes;
};

__device__ __forceinline__ row_lane row_lane_of(int64_t rows, int n_lanes) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    return {at / n_lanes, rows, (int)threadIdx.x % n_lanes, n_lanes};
}

/* Adds the lanes' sums to the stats of their row. Every lane of the warp must call. */
__device__ __forceinline__ void put_stats(float *stats, const row_lane &at, float error, float size,
                                          float bad) {
    error = warp_sum(error, at.n_lanes);
    size = warp_sum(size, at.n_lanes);
    bad = warp_sum(bad, at.n_lanes);
    if (stats == nullptr || at.lane != 0 || at.row >= at.rows) return;
    stats[at.row * 3] += error;
    stats[at.row * 3 + 1] += size;
    stats[at.row * 3 + 2] += bad;
}
