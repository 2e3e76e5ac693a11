/* k_payload.cu - rows as payload bytes: exactly the bytes of every other device.
 *
 * n_lanes lanes of a warp share a row: a power of two, about one lane per four values. A lane takes
 * four values at a time, because one block of random words serves four values. */
#include "backend/cuda/payload.cuh"
#include "backend/cuda/vector.cuh"
#include "backend/scale.h"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

/* Values c to c + 3 of a row; zeros beyond its end. */
__device__ __forceinline__ void take_four(float out[4], const float *row, int64_t c, int64_t cols) {
    if (c + 4 <= cols && at16(row + c)) {
        take<float, 4>(out, row + c);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = c + i < cols ? row[c + i] : 0.0f;
}

__device__ __forceinline__ void put_four(float *row, const float in[4], int64_t c, int64_t cols) {
    if (c + 4 <= cols && at16(row + c)) {
        put<float, 4>(row + c, in);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c + i < cols) row[c + i] = in[i];
}

__device__ __forceinline__ void put_four(bf16 *row, const float in[4], int64_t c, int64_t cols) {
    if (c + 4 <= cols && ((uintptr_t)(row + c) & 7u) == 0) {
        *(uint2 *)(row + c) = make_uint2(bf16_pair(in[0], in[1]), bf16_pair(in[2], in[3]));
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (c + i < cols) put<bf16, 1>(row + c + i, in + i);
}

__device__ __forceinline__ float block_max(float value, float *shared) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(threadIdx.x % 32 < WARPS ? shared[threadIdx.x % 32] : 0.0f);
}

/* The largest magnitude of each row, and of all rows of each block. Maxima do not depend on order.
 */
extern "C" __global__ void __launch_bounds__(THREADS)
    largest_of_rows(float *of_block, float *of_row, const float *x, int64_t rows, int64_t cols,
                    int64_t stride, int n_lanes) {
    __shared__ float shared[WARPS];
    const row_lane at = row_lane_of(rows, n_lanes);
    const int64_t step = (int64_t)gridDim.x * THREADS / n_lanes;
    float all = 0, bad = 0;
    for (int64_t first = at.row - threadIdx.x % 32 / n_lanes; first < rows; first += step) {
        const int64_t n = first +
                          threadIdx.x % 32 /
                              n_lanes; // all lanes of a warp loop equally often: shuffles need them
        float largest = 0;
        for (int64_t c = at.lane * 4; n < rows && c < cols; c += 4 * n_lanes) {
            float v[4];
            take_four(v, x + n * stride, c, cols);
#pragma unroll
            for (int i = 0; i < 4; i++)
                largest = fmaxf(largest, fabsf(wire_value(v[i], &bad)));
        }
        for (int offset = n_lanes / 2; offset > 0; offset /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        if (at.lane == 0 && n < rows) of_row[n] = largest;
        all = fmaxf(all, largest);
    }
    all = block_max(all, shared);
    if (threadIdx.x == 0) of_block[blockIdx.x] = all;
}

/* The code of one valid value. The _rn intrinsics keep the compiler from fusing: floor(x / scale +
 * u) must round as on every other device. */
__device__ __forceinline__ int code_of(float value, float inverse, int most, bool is_stochastic,
                                       uint32_t word) {
    const float scaled = __fmul_rn(value, inverse);
    const float chance = __fmul_rn((float)(word >> 8), 0x1p-24f);
    const float rounded = is_stochastic ? floorf(__fadd_rn(scaled, chance)) : rintf(scaled);
    return (int)fminf(fmaxf(rounded, (float)-most), (float)most);
}

/* Packs four valid values into the returned word; `sent` receives the values that the receiver
 * restores. */
__device__ __forceinline__ uint32_t pack_codes(float sent[4], const float v[4], float scale,
                                               const strait_pack_params &params,
                                               const uint32_t words[4]) {
    const float inverse = scale > 0.0f ? __fdiv_rn(1.0f, scale) : 0.0f;
    const int most = strait_scale_codes(params.bits);
    const uint32_t mask = (1u << params.bits) - 1u;
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int code = code_of(v[i], inverse, most, params.is_stochastic, words[i]);
        word |= ((uint32_t)code & mask) << (i * params.bits);
        sent[i] = __fmul_rn((float)code, scale);
    }
    return word;
}

/* Packs the first n of four valid values into the bytes at `to`. */
__device__ __forceinline__ void pack_four(float sent[4], unsigned char *to, const float v[4], int n,
                                          float scale, const strait_pack_params &params,
                                          const uint32_t words[4]) {
    if (params.bits < 16) {
        const uint32_t word = pack_codes(sent, v, scale, params, words);
        put_bytes(to, word, (n * params.bits + 7) / 8);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t half = wire_half(v[i], params.is_stochastic, words[i]);
        sent[i] = params.bits == 32 ? v[i] : wire_float(half);
        if (i >= n) continue;
        if (params.bits == 32)
            put_bytes(to + i * 4, __float_as_uint(v[i]), 4);
        else
            put_bytes(to + i * 2, half, 2);
    }
}

/* x points to the row; its index matters for stats and random numbers. */
__device__ __forceinline__ void pack_row(unsigned char *to, float *stats, const float *x,
                                         const row_lane &at, int64_t cols, float scale,
                                         const strait_pack_params &params) {
    float error = 0, size = 0, bad = 0;
    for (int64_t c = at.lane * 4; at.row < at.rows && c < cols; c += 4 * at.n_lanes) {
        float v[4], sent[4];
        uint32_t words[4] = {};
        take_four(v, x, c, cols);
        if (params.is_stochastic && params.bits < 32) wire_words(words, params, at.row * cols + c);
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = wire_value(v[i], &bad);
        const int n = cols - c < 4 ? (int)(cols - c) : 4;
        pack_four(sent, to + c * params.bits / 8, v, n, scale, params, words);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            error += (v[i] - sent[i]) * (v[i] - sent[i]);
            size += v[i] * v[i];
        }
    }
    put_stats(stats, at, error, size, bad);
}

/* of_block and of_row are the results of largest_of_rows, in n_parts blocks; NULL for 16 bits and
 * more. params.cols columns are packed. Every block reduces of_block itself, which is cheaper than
 * another launch. */
extern "C" __global__ void __launch_bounds__(THREADS)
    pack_rows(unsigned char *to, float *stats, const float *x, int64_t rows, int64_t stride,
              strait_pack_params params, const float *of_block, const float *of_row, int n_parts,
              int n_lanes) {
    __shared__ float shared[WARPS];
    const int64_t cols = params.cols;
    const row_lane at = row_lane_of(rows, n_lanes);
    const int64_t row_bytes = (cols * params.bits + 7) / 8;
    float scale = 0, largest = 0;
    int64_t start = at.row * row_bytes;
    if (params.bits < 16) {
        for (int i = (int)threadIdx.x; i < n_parts; i += THREADS)
            largest = fmaxf(largest, of_block[i]);
        const float base = strait_scale_base(block_max(largest, shared), params.bits);
        if (blockIdx.x == 0 && threadIdx.x == 0) put_bytes(to, __float_as_uint(base), 4);
        const int code = at.row < rows ? strait_scale_code(base, of_row[at.row], params.bits) : 0;
        if (at.lane == 0 && at.row < rows) to[4 + at.row] = (unsigned char)code;
        scale = strait_scale_of(base, code);
        start += 4 + rows;
    }
    pack_row(to + start, stats, x + at.row * stride, at, cols, scale, params);
}

/* Restores up to four values from column c on. */
__device__ __forceinline__ void restore_four(float out[4], const unsigned char *from, int64_t c,
                                             int n, float scale, int bits, float *bad) {
    if (bits < 16) {
        const uint32_t word = take_bytes(from + c * bits / 8, (n * bits + 7) / 8);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int code = (int)(word << (32 - bits - i * bits)) >> (32 - bits);
            out[i] = i < n ? __fmul_rn((float)code, scale) : 0.0f;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float value = 0;
        if (i < n)
            value = bits == 32 ? __uint_as_float(take_bytes(from + (c + i) * 4, 4))
                               : wire_float(take_bytes(from + (c + i) * 2, 2));
        out[i] = wire_value(value, bad);
    }
}

template <typename T>
__device__ __forceinline__ void restore(T *x, float *stats, const unsigned char *from,
                                        const row_lane &at, int64_t cols, int bits,
                                        int64_t stride) {
    const bool is_row = at.row < at.rows;
    const float base = bits < 16 ? __uint_as_float(take_bytes(from, 4)) : 0.0f;
    const float trusted = strait_scale_trust(base);
    const float scale = bits < 16 && is_row ? strait_scale_of(trusted, from[4 + at.row]) : 0.0f;
    const unsigned char *bytes = from + (bits < 16 ? 4 + at.rows : 0) +
                                 at.row * ((cols * bits + 7) / 8);
    const bool is_damaged = base != trusted; // the received base was invalid
    float size = 0, bad = 0;
    for (int64_t c = at.lane * 4; is_row && c < cols; c += 4 * at.n_lanes) {
        const int n = cols - c < 4 ? (int)(cols - c) : 4;
        float v[4];
        restore_four(v, bytes, c, n, scale, bits, &bad);
        put_four(x + at.row * stride, v, c, cols);
        if (is_damaged) bad += (float)n;
#pragma unroll
        for (int i = 0; i < 4; i++)
            size += v[i] * v[i];
    }
    put_stats(stats, at, 0.0f, size, bad);
}

#define RESTORE_KERNEL(T, name)                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                \
        restore_rows_##name(T *x, float *stats, const unsigned char *from, int64_t rows, \
                            int64_t cols, int bits, int64_t stride, int n_lanes) {       \
        restore<T>(x, stats, from, row_lane_of(rows, n_lanes), cols, bits, stride);      \
    }

RESTORE_KERNEL(float, f32)
RESTORE_KERNEL(bf16, bf16)

/* One warp per row: squared error, squared magnitude and non-finite values of rows whose error is
 * known. */
template <typename T>
__device__ __forceinline__ void measure(float *stats, const T *x, const T *error, int64_t rows,
                                        int64_t cols) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    const bool is_wide = cols % wide<T> == 0 && at16(x, error);
    float off = 0, size = 0, bad = 0;
    for (int64_t c = (int64_t)(threadIdx.x % 32) * wide<T>; c < cols; c += 32 * wide<T>) {
        float v[wide<T>] = {}, e[wide<T>] = {};
        if (is_wide) {
            take<T, wide<T>>(v, x + row * cols + c);
            take<T, wide<T>>(e, error + row * cols + c);
        }
#pragma unroll
        for (int i = 0; i < wide<T>; i++) {
            if (!is_wide && c + i < cols) {
                take<T, 1>(v + i, x + row * cols + c + i);
                take<T, 1>(e + i, error + row * cols + c + i);
            }
            const float value = wire_value(v[i], &bad);
            off += e[i] * e[i];
            size += value * value;
        }
    }
    put_stats(stats, {row, rows, (int)threadIdx.x % 32, 32}, off, size, bad);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    measure_rows_f32(float *stats, const float *x, const float *error, int64_t rows, int64_t cols) {
    measure(stats, x, error, rows, cols);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    measure_rows_bf16(float *stats, const bf16 *x, const bf16 *error, int64_t rows, int64_t cols) {
    measure(stats, x, error, rows, cols);
}
