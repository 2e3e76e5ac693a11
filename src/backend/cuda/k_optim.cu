/* k_optim.cu - AdamW in one pass over weight, gradient and moments. Where a row or a column shares
 * a second moment, its mean square is computed first. */
#include "backend/cuda/double_sum.cuh"
#include "backend/cuda/k_optim.h"
#include "backend/cuda/tensor_batch.cuh"
#include "backend/cuda/vector.cuh"

typedef strait_cuda_adamw adamw_args;

/* The clipping factor of gradients. */
__device__ __forceinline__ float scale_of(const adamw_args &a) {
    return a.scale != nullptr ? a.scale[0] : 1.0f;
}

/* Whether the gradient norm is non-finite: nothing is written then. */
__device__ __forceinline__ bool has_nonfinite_norm(const adamw_args &a) {
    return a.norm != nullptr && !isfinite(*a.norm);
}

/* The clipped gradient. A factor of 0 gives 0 even for non-finite gradients, where a product would
 * be NaN. */
__device__ __forceinline__ float scaled(float grad, float grad_scale) {
    return grad_scale == 0.0f ? 0.0f : grad * grad_scale;
}

/* Updates W weights at `at`. v holds their second moments: their own, which are updated too, or
 * shared ones. */
template <int W, bool is_own>
__device__ __forceinline__ void update(const adamw_args &a, int64_t at, float grad_scale,
                                       float v[W]) {
    float w[W], m[W], grad[W];
    take<float, W>(w, a.weight + at);
    take<float, W>(m, a.m + at);
    take<float, W>(grad, a.grad + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float g = scaled(grad[i], grad_scale);
        if (is_own) v[i] = v[i] * a.beta2 + g * g * (1.0f - a.beta2);
        m[i] = m[i] * a.beta1 + g * (1.0f - a.beta1);
        w[i] = w[i] * a.keep - m[i] / (sqrtf(v[i]) * a.root + a.epsilon) * a.rate;
    }
    put<float, W>(a.weight + at, w);
    put<float, W>(a.m + at, m);
    if (a.copy == nullptr) return;
    if constexpr (W == 1) {
        a.copy[at] = (uint16_t)bf16_bits(w[0]);
    } else {
        static_assert(W == 4, "four bf16 are two words");
        *(uint2 *)(a.copy + at) = make_uint2(bf16_pair(w[0], w[1]), bf16_pair(w[2], w[3]));
    }
}

/* Updates weights [begin, end) by the threads of a block, W at a time. */
template <int W>
__device__ __forceinline__ void update_own(const adamw_args &a, int64_t begin, int64_t end) {
    const float grad_scale = scale_of(a);
#pragma unroll 2
    for (int64_t i = begin + threadIdx.x * W; i < end; i += blockDim.x * W) {
        float v[W];
        take<float, W>(v, a.v + i);
        update<W, true>(a, i, grad_scale, v);
        put<float, W>(a.v + i, v);
    }
}

__device__ __forceinline__ bool is_wide(const adamw_args &a) {
    return at16(a.weight, a.m, a.v, a.grad, a.copy);
}

/* One second moment per weight; many tensors per launch. */
extern "C" __global__ void __launch_bounds__(256)
    adamw_own(const __grid_constant__ strait_cuda_updates all) {
    constexpr int64_t SHARE = STRAIT_CUDA_UPDATES_SHARE;
    const int own = tensor_of_block(all.first, all.count);
    const adamw_args a = all.of[own];
    if (has_nonfinite_norm(a)) return;
    const int64_t n = a.rows * a.cols, begin = ((int64_t)blockIdx.x - all.first[own]) * SHARE;
    const int64_t end = begin + SHARE < n ? begin + SHARE : n;
    const int64_t even = is_wide(a) ? end - end % 4 : begin;
    update_own<4>(a, begin, even);
    update_own<1>(a, even, end);
}

/* v = beta2 v + (1 - beta2) squares / n */
__device__ __forceinline__ float updated_moment(float v, double squares, int64_t n, float beta2) {
    return v * beta2 + (float)(squares / (double)n) * (1.0f - beta2);
}

template <int W>
__device__ __forceinline__ void update_row(const adamw_args &a, int64_t row, float v) {
    float same[W];
#pragma unroll
    for (int i = 0; i < W; i++)
        same[i] = v;
    const float grad_scale = scale_of(a);
    for (int64_t c = (int64_t)threadIdx.x * W; c < a.cols; c += (int64_t)blockDim.x * W)
        update<W, false>(a, row * a.cols + c, grad_scale, same);
}

/* One second moment per row, one block per row. */
extern "C" __global__ void __launch_bounds__(256) adamw_row(adamw_args a) {
    __shared__ double shared[32];
    if (has_nonfinite_norm(a)) return;
    const float grad_scale = scale_of(a);
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        double squares = 0;
        for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
            const double g = (double)scaled(a.grad[row * a.cols + c], grad_scale);
            squares += g * g;
        }
        const float old = a.v[row]; // all threads read it before the barriers of block_sum
        const float v = updated_moment(old, block_sum(squares, shared), a.cols, a.beta2);
        if (threadIdx.x == 0) a.v[row] = v;
        if (is_wide(a) && a.cols % 4 == 0)
            update_row<4>(a, row, v);
        else
            update_row<1>(a, row, v);
    }
}

/* partials[piece][column] = sum of squares over the piece's rows, in order; one thread per column.
 */
extern "C" __global__ void __launch_bounds__(128)
    adamw_column_squares(double *partials, adamw_args a, int64_t rows_each) {
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.cols) return;
    const int64_t begin = (int64_t)blockIdx.y * rows_each;
    const int64_t end = begin + rows_each < a.rows ? begin + rows_each : a.rows;
    const float grad_scale = scale_of(a);
    double squares = 0;
    for (int64_t row = begin; row < end; row++) {
        const double g = (double)scaled(a.grad[row * a.cols + c], grad_scale);
        squares += g * g;
    }
    partials[blockIdx.y * a.cols + c] = squares;
}

extern "C" __global__ void __launch_bounds__(128)
    adamw_column_mean(adamw_args a, const double *partials, int64_t n_partials) {
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= a.cols || has_nonfinite_norm(a)) return;
    double squares = 0;
    for (int64_t i = 0; i < n_partials; i++)
        squares += partials[i * a.cols + c];
    a.v[c] = updated_moment(a.v[c], squares, a.rows, a.beta2);
}

template <int W> __device__ __forceinline__ void update_columns(const adamw_args &a, int64_t row) {
    const float grad_scale = scale_of(a);
    for (int64_t c = (int64_t)threadIdx.x * W; c < a.cols; c += (int64_t)blockDim.x * W) {
        float v[W];
        take<float, W>(v, a.v + c);
        update<W, false>(a, row * a.cols + c, grad_scale, v);
    }
}

/* One second moment per column, already updated. */
extern "C" __global__ void __launch_bounds__(256) adamw_column(adamw_args a) {
    if (has_nonfinite_norm(a)) return;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        if (is_wide(a) && a.cols % 4 == 0)
            update_columns<4>(a, row);
        else
            update_columns<1>(a, row);
    }
}
