/* row_sums.cuh - sums over several rows at once, by a block whose threads hold their columns. */
#pragma once

#include "backend/cuda/vector.cuh"

constexpr int WARPS = 16; // at most, of a block

/* Sums of R values each over the lanes of a warp: lane l has the sum of value l / (32 / R). Lanes
 * first exchange values that the other half keeps, which takes fewer shuffles than R sums. */
template <int R> __device__ __forceinline__ float warp_sums(const float v[R]) {
    static_assert(R == 2 || R == 4, "values of a lane");
    const bool is_high = (threadIdx.x & 16u) != 0;
    float kept[R / 2];
#pragma unroll
    for (int i = 0; i < R / 2; i++) {
        const float sent = is_high ? v[i] : v[R / 2 + i];
        kept[i] = is_high ? v[R / 2 + i] : v[i];
        kept[i] += __shfl_xor_sync(0xffffffffu, sent, 16);
    }
    if constexpr (R == 2)
        return warp_sum(kept[0], 16);
    else {
        const bool is_odd = (threadIdx.x & 8u) != 0;
        const float sent = is_odd ? kept[0] : kept[1];
        const float sum = (is_odd ? kept[1] : kept[0]) + __shfl_xor_sync(0xffffffffu, sent, 8);
        return warp_sum(sum, 8);
    }
}

/* Sums over warps, for two groups in turn: a warp may write those of a group while another still
 * reads those of the one before. */
template <int R> struct warp_parts { float of[2][R][WARPS]; };

template <int R>
__device__ __forceinline__ void put_parts(warp_parts<R> &parts, int group, const float v[R]) {
    const float sum = warp_sums<R>(v);
    const int lane = (int)threadIdx.x % 32;
    if (lane % (32 / R) == 0) parts.of[group % 2][lane / (32 / R)][threadIdx.x / 32] = sum;
}

/* The sums of the rows over the block, in every thread. Warps that are not there have left zeros.
 */
template <int R>
__device__ __forceinline__ void take_sums(float sums[R], const warp_parts<R> &parts, int group) {
    constexpr int EACH = R * WARPS / 32; // of a lane: neighbouring warps of one row
    const float *from = &parts.of[group % 2][0][0] + threadIdx.x % 32 * EACH;
    float sum = from[0];
#pragma unroll
    for (int i = 1; i < EACH; i++)
        sum += from[i];
    sum = warp_sum(sum, 32 / R);
#pragma unroll
    for (int r = 0; r < R; r++)
        sums[r] = __shfl_sync(0xffffffffu, sum, r * (32 / R));
}

template <int R> __device__ __forceinline__ void clear_parts(warp_parts<R> &parts) {
    for (int i = (int)threadIdx.x; i < 2 * R * WARPS; i += (int)blockDim.x)
        (&parts.of[0][0][0])[i] = 0.0f;
    __syncthreads();
}
