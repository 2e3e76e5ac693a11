/* conv_window.cuh - the taps of a convolution and the last rows of W columns, in registers. */
#pragma once

#include "backend/cuda/vector.cuh"
#include "backend/kernels.h"

constexpr int TAPS = STRAIT_CONV_TAPS;

/* Rows [first, end) of this block, none for some blocks. The split follows from the shape alone,
 * and so does the order of sums over rows. */
struct row_share {
    int64_t first, end;
};

__device__ __forceinline__ row_share my_rows(int64_t rows) {
    const int64_t each = (rows + gridDim.x - 1) / gridDim.x;
    const int64_t first = blockIdx.x * each < rows ? blockIdx.x * each : rows;
    return {first, first + each < rows ? first + each : rows};
}

/* Taps of W columns; those that are not there are 0. */
template <int W>
__device__ __forceinline__ void take_taps(float w[TAPS][W], const float *from, int64_t cols,
                                          int64_t c, int n_taps) {
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            w[j][i] = j < n_taps ? from[j * cols + c + i] : 0.0f;
    }
}

/* Shifts the window: rows[j] = rows[j - 1]; the next row goes into rows[0]. */
template <int W> __device__ __forceinline__ void shift_rows(float rows[TAPS][W]) {
#pragma unroll
    for (int j = TAPS - 1; j > 0; j--) {
#pragma unroll
        for (int i = 0; i < W; i++)
            rows[j][i] = rows[j - 1][i];
    }
}

template <int W> __device__ __forceinline__ void clear_rows(float rows[TAPS][W]) {
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            rows[j][i] = 0.0f;
    }
}

/* rows[0] + sum of w[j] rows[j] */
template <int W>
__device__ __forceinline__ void mix(float out[W], const float rows[TAPS][W],
                                    const float w[TAPS][W]) {
#pragma unroll
    for (int i = 0; i < W; i++) {
        float sum = rows[0][i];
#pragma unroll
        for (int j = 0; j < TAPS; j++)
            sum += w[j][i] * rows[j][i];
        out[i] = sum;
    }
}

/* sums[j] += rows[j] value */
template <int W>
__device__ __forceinline__ void add_products(float sums[TAPS][W], const float rows[TAPS][W],
                                             const float value[W]) {
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            sums[j][i] += value[i] * rows[j][i];
    }
}
