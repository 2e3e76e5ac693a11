/* vector.cuh - loads and stores of f32 and bf16 values in pieces of up to 16 bytes; sums over
 * threads.
 *
 * A kernel's body is written once for a type T and a width W: W is 16 / sizeof(T) where every row
 * is aligned to 16 bytes, else 1. Each kernel decides by its addresses, uniformly in the whole
 * grid. */
#pragma once

#include <stdint.h>

struct bf16 {
    uint16_t bits;
};

/* Rounds to nearest, half to even; NaN stays NaN. */
__device__ __forceinline__ uint32_t bf16_bits(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return bf16_bits(low) | bf16_bits(high) << 16;
#endif
}

/* Rotates a pair of values. Which products are fused with sums is written out: the compiler chooses
 * by what surrounds them, and the bits of two kernels would differ. */
__device__ __forceinline__ void rotate_pair(float &low, float &high, float cosine, float sine) {
    const float a = low, b = high;
    low = __fmaf_rn(a, cosine, -__fmul_rn(b, sine));
    high = __fmaf_rn(b, cosine, __fmul_rn(a, sine));
}

/* W values as stored in memory. */
template <typename T, int W> struct lanes;

template <> struct lanes<float, 1> { float raw; };
template <> struct lanes<float, 4> { float4 raw; };
template <> struct lanes<bf16, 1> { uint16_t raw; };
template <> struct lanes<bf16, 4> { uint2 raw; };
template <> struct lanes<bf16, 8> { uint4 raw; };

/* Values in 16 bytes. */
template <typename T> constexpr int wide = 16 / (int)sizeof(T);

template <typename T, int W> __device__ __forceinline__ lanes<T, W> load(const T *from) {
    return *(const lanes<T, W> *)from;
}

__device__ __forceinline__ void widen(float out[1], lanes<float, 1> in) {
    out[0] = in.raw;
}

__device__ __forceinline__ void widen(float out[4], lanes<float, 4> in) {
    out[0] = in.raw.x;
    out[1] = in.raw.y;
    out[2] = in.raw.z;
    out[3] = in.raw.w;
}

__device__ __forceinline__ void widen(float out[1], lanes<bf16, 1> in) {
    out[0] = __uint_as_float((uint32_t)in.raw << 16);
}

__device__ __forceinline__ void widen(float out[4], lanes<bf16, 4> in) {
    out[0] = __uint_as_float(in.raw.x << 16);
    out[1] = __uint_as_float(in.raw.x & 0xffff0000u);
    out[2] = __uint_as_float(in.raw.y << 16);
    out[3] = __uint_as_float(in.raw.y & 0xffff0000u);
}

__device__ __forceinline__ void widen(float out[8], lanes<bf16, 8> in) {
    const uint32_t words[4] = {in.raw.x, in.raw.y, in.raw.z, in.raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(words[i] << 16);
        out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

template <typename T, int W> __device__ __forceinline__ void take(float out[W], const T *from) {
    widen(out, load<T, W>(from));
}

template <typename T, int W> __device__ __forceinline__ lanes<T, W> narrow(const float in[W]);

template <> __device__ __forceinline__ lanes<float, 1> narrow<float, 1>(const float in[1]) {
    return {in[0]};
}

template <> __device__ __forceinline__ lanes<float, 4> narrow<float, 4>(const float in[4]) {
    return {make_float4(in[0], in[1], in[2], in[3])};
}

template <> __device__ __forceinline__ lanes<bf16, 1> narrow<bf16, 1>(const float in[1]) {
    return {(uint16_t)bf16_bits(in[0])};
}

template <> __device__ __forceinline__ lanes<bf16, 4> narrow<bf16, 4>(const float in[4]) {
    return {make_uint2(bf16_pair(in[0], in[1]), bf16_pair(in[2], in[3]))};
}

template <> __device__ __forceinline__ lanes<bf16, 8> narrow<bf16, 8>(const float in[8]) {
    return {make_uint4(bf16_pair(in[0], in[1]), bf16_pair(in[2], in[3]), bf16_pair(in[4], in[5]),
                       bf16_pair(in[6], in[7]))};
}

template <typename T, int W> __device__ __forceinline__ void put(T *to, const float in[W]) {
    *(lanes<T, W> *)to = narrow<T, W>(in);
}

/* Loads W consecutive floats; W is 1 or a multiple of 4, and then they are aligned to 16 bytes. */
template <int W> __device__ __forceinline__ void take_floats(float out[W], const float *from) {
    if constexpr (W == 1) {
        out[0] = from[0];
    } else {
#pragma unroll
        for (int i = 0; i < W; i += 4)
            take<float, 4>(out + i, from + i);
    }
}

template <int W> __device__ __forceinline__ void put_floats(float *to, const float in[W]) {
    if constexpr (W == 1) {
        to[0] = in[0];
    } else {
#pragma unroll
        for (int i = 0; i < W; i += 4)
            put<float, 4>(to + i, in + i);
    }
}

/* Whether every address is a multiple of 16. NULL, an absent tensor, is. */
__device__ __forceinline__ bool at16(const void *a, const void *b = nullptr,
                                     const void *c = nullptr, const void *d = nullptr,
                                     const void *e = nullptr) {
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) & 15u) == 0;
}

/* The sum over the lanes of a warp, or over aligned groups of `width` lanes, in every lane: a
 * butterfly, whose order depends on the width alone. */
__device__ __forceinline__ float warp_sum(float value, int width = 32) {
    for (int offset = width / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset, width);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

/* The sum over a block of at most 32 whole warps, in every thread. `shared` is 32 floats of shared
 * memory that nothing else uses between this call and the next barrier. */
__device__ __forceinline__ float block_sum(float value, float *shared) {
    const int n_warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    value = warp_sum(value);
    if (n_warps == 1) return value;
    if (lane == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = warp_sum(lane < n_warps ? shared[lane] : 0.0f);
    __syncthreads();
    return value;
}

__device__ __forceinline__ float fast_exp(float x) {
    return __expf(x);
}

__device__ __forceinline__ float sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* A grid-stride loop over rows and columns: a block takes blockDim.y rows at a time, a thread W
 * columns, for which it calls body(row, column). The grid is that of strait_cuda_by_rows. */
template <int W, typename F>
__device__ __forceinline__ void over_rows(int64_t rows, int64_t cols, F body) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    const int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows;
         row += (int64_t)gridDim.y * blockDim.y)
        for (int64_t c = first; c < cols; c += step)
            body(row, c);
}
