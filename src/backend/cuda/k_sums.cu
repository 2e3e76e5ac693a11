/* k_sums.cu - sums over whole tensors, in double precision and in an order fixed by the shape. */
#include "backend/cuda/double_sum.cuh"
#include "backend/cuda/k_sums.h"
#include "backend/cuda/tensor_batch.cuh"
#include "backend/cuda/vector.cuh"

constexpr int64_t SHARE = STRAIT_CUDA_SQUARES_SHARE;

template <typename T, int W>
__device__ __forceinline__ double squares_of(const T *x, int64_t begin, int64_t end) {
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x * W; i < end; i += blockDim.x * W) {
        float values[W];
        take<T, W>(values, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += (double)values[j] * (double)values[j];
    }
    return sum;
}

/* partials[block] = sum of squares of the block's share of its tensor. */
template <typename T>
__device__ __forceinline__ void squares(double *partials, const strait_cuda_squares &all) {
    __shared__ double shared[32];
    const int own = tensor_of_block(all.first, all.count);
    const T *x = (const T *)all.x[own];
    const int64_t begin = ((int64_t)blockIdx.x - all.first[own]) * SHARE;
    const int64_t end = begin + SHARE < all.n[own] ? begin + SHARE : all.n[own];
    const int64_t even = at16(x) ? end - end % wide<T> : begin;
    double sum = squares_of<T, wide<T>>(x, begin, even);
    sum += squares_of<T, 1>(x, even, end);
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    squares_f32(double *partials, const __grid_constant__ strait_cuda_squares all) {
    squares<float>(partials, all);
}

extern "C" __global__ void __launch_bounds__(256)
    squares_bf16(double *partials, const __grid_constant__ strait_cuda_squares all) {
    squares<bf16>(partials, all);
}

/* The sum of n values by one block, in every thread. */
template <typename T> __device__ __forceinline__ double total_of(const T *values, int64_t n) {
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)values[i];
    return block_sum(sum, shared);
}

/* One block per tensor. */
extern "C" __global__ void __launch_bounds__(256)
    squares_total(float *totals, const double *partials,
                  const __grid_constant__ strait_cuda_squares all) {
    const int own = (int)blockIdx.x;
    const double sum = total_of(partials + all.first[own], (all.n[own] + SHARE - 1) / SHARE);
    if (threadIdx.x == 0) totals[own] = (float)sum;
}

/* The sum of n values from the first to the last, by thread 0 of one block; the others only load.
 */
__device__ __forceinline__ double sum_in_order(const float *values, int64_t n) {
    __shared__ float shared[256];
    double sum = 0;
    for (int64_t first = 0; first < n; first += 256) {
        if (first + threadIdx.x < n) shared[threadIdx.x] = values[first + threadIdx.x];
        __syncthreads();
        const int count = n - first < 256 ? (int)(n - first) : 256;
        for (int i = 0; i < count && threadIdx.x == 0; i++)
            sum += (double)shared[i];
        __syncthreads();
    }
    return sum;
}

/* scale[1] = norm = sqrt(sum of totals), scale[0] = clipping factor: with the same bits that the
 * host would compute from the totals, because stages on different devices must agree. */
extern "C" __global__ void __launch_bounds__(256)
    clip(float *scale, const float *totals, int64_t n, double max_norm) {
    const double norm = sqrt(sum_in_order(totals, n));
    if (threadIdx.x != 0) return;
    scale[1] = (float)norm;
    if (!isfinite(norm))
        scale[0] = 0.0f;
    else if (max_norm > 0 && norm > max_norm)
        scale[0] = (float)(max_norm / norm);
    else
        scale[0] = 1.0f;
}
