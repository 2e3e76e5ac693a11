/* k_elementwise.cu - cast, add, axpy, lerp, normalise: value by value.
 *
 * Where all addresses are aligned to 16 bytes, threads take W values at a time and the rest one by
 * one. Values are independent, so the split changes no bit. */
#include "backend/cuda/vector.cuh"

/* The pieces of n values that a thread computes: first, first + step, ... */
struct share {
    int64_t first, step;
};

__device__ __forceinline__ share my_share() {
    return {(int64_t)blockIdx.x * blockDim.x + threadIdx.x, (int64_t)gridDim.x * blockDim.x};
}

/* y = op(a, b) for pieces [begin, end) of W values. */
template <typename T, int W, typename Op>
__device__ __forceinline__ void each_piece(T *y, const T *a, const T *b, int64_t begin, int64_t end,
                                           Op op) {
    const share mine = my_share();
    for (int64_t i = begin + mine.first; i < end; i += mine.step) {
        float left[W], right[W];
        take<T, W>(left, a + i * W);
        take<T, W>(right, b + i * W);
#pragma unroll
        for (int j = 0; j < W; j++)
            left[j] = op(left[j], right[j]);
        put<T, W>(y + i * W, left);
    }
}

template <typename T, typename Op>
__device__ __forceinline__ void each(T *y, const T *a, const T *b, int64_t n, Op op) {
    constexpr int W = wide<T>;
    const int64_t n_wide = at16(y, a, b) ? n / W : 0;
    each_piece<T, W>(y, a, b, 0, n_wide, op);
    each_piece<T, 1>(y, a, b, n_wide * W, n, op);
}

/* Converts W values of one type to the other. */
template <typename Y, typename X, int W>
__device__ __forceinline__ void cast_piece(Y *y, const X *x) {
    float values[W];
    if constexpr (sizeof(X) == sizeof(float)) {
        take_floats<W>(values, x);
        put<Y, W>(y, values);
    } else {
        take<X, W>(values, x);
        put_floats<W>(y, values);
    }
}

template <typename Y, typename X>
__device__ __forceinline__ void cast(Y *y, const X *x, int64_t n) {
    constexpr int W = 8;
    const share mine = my_share();
    const int64_t n_wide = at16(y, x) ? n / W : 0;
    for (int64_t i = mine.first; i < n_wide; i += mine.step)
        cast_piece<Y, X, W>(y + i * W, x + i * W);
    for (int64_t i = n_wide * W + mine.first; i < n; i += mine.step)
        cast_piece<Y, X, 1>(y + i, x + i);
}

extern "C" __global__ void __launch_bounds__(256)
    cast_f32_bf16(bf16 *y, const float *x, int64_t n) {
    cast(y, x, n);
}

extern "C" __global__ void __launch_bounds__(256)
    cast_bf16_f32(float *y, const bf16 *x, int64_t n) {
    cast(y, x, n);
}

struct sum_of {
    __device__ float operator()(float a, float b) const {
        return a + b;
    }
};

struct axpy_of {
    float alpha;
    __device__ float operator()(float y, float x) const {
        return y + alpha * x;
    }
};

struct lerp_of {
    float t;
    __device__ float operator()(float y, float x) const {
        return y + t * (x - y);
    }
};

struct scale_of {
    float factor;
    __device__ float operator()(float, float x) const {
        return x * factor;
    }
};

#define FAMILY(suffix, T)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                        \
        add_##suffix(T *y, const T *a, const T *b, int64_t n) {                              \
        each(y, a, b, n, sum_of{});                                                          \
    }                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                        \
        axpy_##suffix(T *y, const T *x, int64_t n, float alpha) {                            \
        each(y, y, x, n, axpy_of{alpha});                                                    \
    }                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                        \
        lerp_##suffix(T *y, const T *x, int64_t n, float t) {                                \
        each(y, y, x, n, lerp_of{t});                                                        \
    }                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                        \
        normalise_##suffix(T *y, const T *x, int64_t n, const float *total, float epsilon) { \
        each(y, x, x, n, scale_of{1.0f / (sqrtf(total[0]) + epsilon)});                      \
    }

FAMILY(f32, float)
FAMILY(bf16, bf16)
