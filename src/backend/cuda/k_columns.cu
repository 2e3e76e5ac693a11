/* k_columns.cu - rows added to all rows, and copies between columns: add_row, add_cols, cut_cols,
 * resize_cols, regroup_cols. */
#include "backend/cuda/vector.cuh"
#include "backend/kernel_params.h"

constexpr int THREADS = 256;

template <typename T, int W>
__device__ __forceinline__ void add_row_pieces(T *y, const float *row, int64_t rows, int64_t cols) {
    over_rows<W>(rows, cols, [=](int64_t at_row, int64_t c) {
        float sum[W], more[W];
        take<T, W>(sum, y + at_row * cols + c);
        take_floats<W>(more, row + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += more[i];
        put<T, W>(y + at_row * cols + c, sum);
    });
}

/* The partial sums of this block's share of rows, which follows from the shape alone. */
template <typename T>
__device__ __forceinline__ void sum_share(float *part, const T *d_y, int64_t rows, int64_t cols) {
    const int64_t each = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
    const int64_t end = first + each < rows ? first + each : rows;
    const int64_t step = (int64_t)gridDim.y * blockDim.x;
    for (int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; c < cols; c += step) {
        float sum = 0.0f, value[1];
        for (int64_t row = first; row < end; row++) {
            take<T, 1>(value, d_y + row * cols + c);
            sum += value[0];
        }
        part[blockIdx.x * cols + c] = sum;
    }
}

/* Calls op(offset in the narrow tensor, offset in the wide one) for each piece of W columns. */
template <int W, typename Op>
__device__ __forceinline__ void each_piece(int64_t rows, int64_t narrow, int64_t broad,
                                           int64_t first, Op op) {
    over_rows<W>(rows, narrow,
                 [=](int64_t row, int64_t c) { op(row * narrow + c, row * broad + first + c); });
}

template <typename T, int W>
__device__ __forceinline__ void add_pieces(T *y, const T *x, int64_t rows, int64_t y_cols,
                                           int64_t x_cols, int64_t first) {
    each_piece<W>(rows, x_cols, y_cols, first, [=](int64_t from, int64_t to) {
        float sum[W], more[W];
        take<T, W>(sum, y + to);
        take<T, W>(more, x + from);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += more[i];
        put<T, W>(y + to, sum);
    });
}

template <typename T, int W>
__device__ __forceinline__ void cut_pieces(T *y, const T *x, int64_t rows, int64_t y_cols,
                                           int64_t x_cols, int64_t first) {
    each_piece<W>(rows, y_cols, x_cols, first, [=](int64_t to, int64_t from) {
        float value[W];
        take<T, W>(value, x + from);
        put<T, W>(y + to, value);
    });
}

/* Wide accesses need every width and offset to be a multiple of their length. */
template <typename T> __device__ __forceinline__ bool in_pieces(int64_t a, int64_t b, int64_t c) {
    return (a | b | c) % wide<T> == 0;
}

#define COLS_KERNELS(T, name)                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                    \
        add_row_##name(T *y, const float *row, int64_t rows, int64_t cols) {             \
        if (cols % wide<T> == 0 && at16(y, row))                                         \
            add_row_pieces<T, wide<T>>(y, row, rows, cols);                              \
        else                                                                             \
            add_row_pieces<T, 1>(y, row, rows, cols);                                    \
    }                                                                                    \
    extern "C" __global__ void __launch_bounds__(128)                                    \
        add_row_back_##name(float *part, const T *d_y, int64_t rows, int64_t cols) {     \
        sum_share(part, d_y, rows, cols);                                                \
    }                                                                                    \
    extern "C" __global__ void __launch_bounds__(256) add_cols_##name(                   \
        T *y, const T *x, int64_t rows, int64_t y_cols, int64_t x_cols, int64_t first) { \
        if (in_pieces<T>(y_cols, x_cols, first) && at16(y, x))                           \
            add_pieces<T, wide<T>>(y, x, rows, y_cols, x_cols, first);                   \
        else                                                                             \
            add_pieces<T, 1>(y, x, rows, y_cols, x_cols, first);                         \
    }                                                                                    \
    extern "C" __global__ void __launch_bounds__(256) cut_cols_##name(                   \
        T *y, const T *x, int64_t rows, int64_t y_cols, int64_t x_cols, int64_t first) { \
        if (in_pieces<T>(y_cols, x_cols, first) && at16(y, x))                           \
            cut_pieces<T, wide<T>>(y, x, rows, y_cols, x_cols, first);                   \
        else                                                                             \
            cut_pieces<T, 1>(y, x, rows, y_cols, x_cols, first);                         \
    }

/* Both types share the source; the suffix tells the host which one to launch. */
COLS_KERNELS(float, f32)
COLS_KERNELS(bf16, bf16)

/* y = x truncated, or padded with zeros: single values, because the two widths rarely share an
 * alignment. */
template <typename T>
__device__ __forceinline__ void resize(T *y, const T *x, int64_t rows, int64_t to_cols,
                                       int64_t from_cols) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
        for (int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; c < to_cols; c += step)
            y[row * to_cols + c] = c < from_cols ? x[row * from_cols + c] : T{0};
}

extern "C" __global__ void __launch_bounds__(256)
    resize_cols_f32(float *y, const float *x, int64_t rows, int64_t to_cols, int64_t from_cols) {
    resize(y, x, rows, to_cols, from_cols);
}

extern "C" __global__ void __launch_bounds__(256)
    resize_cols_bf16(bf16 *y, const bf16 *x, int64_t rows, int64_t to_cols, int64_t from_cols) {
    resize(y, x, rows, to_cols, from_cols);
}

/* Loads, and stores, W values of either type. */
template <typename T, int W> __device__ __forceinline__ void pull(float out[W], const T *from) {
    if constexpr (sizeof(T) == sizeof(float))
        take_floats<W>(out, (const float *)from);
    else
        take<T, W>(out, from);
}

template <typename T, int W> __device__ __forceinline__ void push(T *to, const float in[W]) {
    if constexpr (sizeof(T) == sizeof(float))
        put_floats<W>((float *)to, in);
    else
        put<T, W>(to, in);
}

/* Pieces never cross groups, because every width is a multiple of W. */
template <typename Y, typename X, int W>
__device__ __forceinline__ void regroup_pieces(Y *y, const X *x, int64_t rows, int64_t y_cols,
                                               int64_t x_cols,
                                               const strait_regroup_params &params) {
    const uint32_t group = (uint32_t)params.to_cols;
    over_rows<W>(rows, params.n_groups * params.to_cols, [=](int64_t row, int64_t at) {
        const uint32_t g = (uint32_t)at / group, c = (uint32_t)at % group;
        float value[W] = {}, old[W];
        Y *to = y + row * y_cols + params.to + at;
        if (c < params.from_cols)
            pull<X, W>(value, x + row * x_cols + params.from + g * params.from_cols + c);
        if (params.adds) pull<Y, W>(old, to);
#pragma unroll
        for (int i = 0; i < W; i++)
            value[i] = params.adds ? old[i] + value[i] * params.alpha : value[i] * params.alpha;
        push<Y, W>(to, value);
    });
}

/* Eight columns at a time where every width, offset and address allows it. */
template <typename Y, typename X>
__device__ __forceinline__ void regroup(Y *y, const X *x, int64_t rows, int64_t y_cols,
                                        int64_t x_cols, const strait_regroup_params &params) {
    const int64_t all = y_cols | x_cols | params.to | params.to_cols | params.from |
                        params.from_cols;
    if (all % 8 == 0 && at16(y, x))
        regroup_pieces<Y, X, 8>(y, x, rows, y_cols, x_cols, params);
    else
        regroup_pieces<Y, X, 1>(y, x, rows, y_cols, x_cols, params);
}

#define REGROUP_KERNEL(Y, X, name)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS)                              \
        regroup_##name(Y *y, const X *x, int64_t rows, int64_t y_cols, int64_t x_cols, \
                       strait_regroup_params params) {                                 \
        regroup(y, x, rows, y_cols, x_cols, params);                                   \
    }

REGROUP_KERNEL(float, float, f32_f32)
REGROUP_KERNEL(float, bf16, f32_bf16)
REGROUP_KERNEL(bf16, float, bf16_f32)
REGROUP_KERNEL(bf16, bf16, bf16_bf16)
