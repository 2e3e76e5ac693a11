/* k_sums.cu - sums over whole tensors, in double precision and in an order fixed by the shape. */
#include "backend/cuda/double_sum.cuh"
#include "backend/cuda/lanes.cuh"

template <typename T, int W>
__device__ __forceinline__ double squares_of(const T *x, int64_t begin, int64_t end) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    double sum = 0;
    for (int64_t i = begin + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
        float values[W];
        take<T, W>(values, x + i * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += (double)values[j] * (double)values[j];
    }
    return sum;
}

/* partials[block] = the squares of its share. */
template <typename T>
__device__ __forceinline__ void squares(double *partials, const T *x, int64_t n) {
    __shared__ double room[32];
    const int64_t n_wide = at16(x) ? n / wide<T> : 0;
    double sum = squares_of<T, wide<T>>(x, 0, n_wide);
    sum += squares_of<T, 1>(x, n_wide * wide<T>, n);
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    squares_f32(double *partials, const float *x, int64_t n) {
    squares(partials, x, n);
}

extern "C" __global__ void __launch_bounds__(256)
    squares_bf16(double *partials, const bf16 *x, int64_t n) {
    squares(partials, x, n);
}

/* One block; of each thread, the sum of its share of n values. */
template <typename T> __device__ __forceinline__ double total_of(const T *values, int64_t n) {
    __shared__ double room[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)values[i];
    return block_sum(sum, room);
}

extern "C" __global__ void __launch_bounds__(256)
    squares_total(float *total, const double *partials, int64_t n) {
    const double sum = total_of(partials, n);
    if (threadIdx.x == 0) total[0] = (float)sum;
}

/* scale[1] is the norm whose square the totals make, scale[0] what clips it. */
extern "C" __global__ void __launch_bounds__(256)
    clip(float *scale, const float *totals, int64_t n, float max_norm) {
    const double norm = sqrt(total_of(totals, n));
    if (threadIdx.x != 0) return;
    scale[1] = (float)norm;
    if (!isfinite(norm))
        scale[0] = 0.0f;
    else if (max_norm > 0.0f && norm > (double)max_norm)
        scale[0] = (float)((double)max_norm / norm);
    else
        scale[0] = 1.0f;
}
