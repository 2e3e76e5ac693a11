/* k_conv.cu - causal convolution over the rows of a sequence, each column by itself.
 *
 * A block takes a range of neighbouring rows, a thread W columns of them. Taps and the last rows
 * stay in registers, so that every value is read once. Equations in ref_conv.c. */
#include "backend/cuda/vector.cuh"
#include "backend/kernels.h"

constexpr int TAPS = STRAIT_CONV_TAPS;
constexpr int BATCH = 4; // rows loaded ahead, to hide the latency of memory

/* Rows [first, end) of this block. The split follows from the shape alone, and so does the order of
 * the sums of d_w. */
struct row_share {
    int64_t first, end;
};

__device__ __forceinline__ row_share my_rows(int64_t rows) {
    const int64_t each = (rows + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
    return {first, first + each < rows ? first + each : rows};
}

/* W columns of a row, or zeros where it is outside the sequence. */
template <typename T, int W>
__device__ __forceinline__ void take_row(float out[W], const T *x, int64_t at, bool is_valid) {
#pragma unroll
    for (int i = 0; i < W; i++)
        out[i] = 0.0f;
    if (is_valid) take<T, W>(out, x + at);
}

template <int W>
__device__ __forceinline__ void take_taps(float w[TAPS][W], const float *from, int64_t cols,
                                          int64_t c, int taps) {
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            w[j][i] = j < taps ? from[j * cols + c + i] : 0.0f;
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

template <typename T, int W>
__device__ __forceinline__ void conv_cols(T *y, const T *x, const float *taps_of, int64_t rows,
                                          int64_t cols, int64_t c, int taps, int64_t seq_len) {
    const row_share mine = my_rows(rows);
    float w[TAPS][W], near[TAPS][W], out[W];
    take_taps<W>(w, taps_of, cols, c, taps);
    int64_t position = mine.first % seq_len;
#pragma unroll
    for (int j = 1; j < TAPS; j++) // shifted to near[j] before the first row
        take_row<T, W>(near[j - 1], x, (mine.first - j) * cols + c,
                       j <= position && j < taps && mine.first < mine.end);
    for (int64_t start = mine.first; start < mine.end; start += BATCH) {
        lanes<T, W> loaded[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (start + b < mine.end) loaded[b] = load<T, W>(x + (start + b) * cols + c);
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (start + b >= mine.end) break;
            shift_rows<W>(near);
            widen(near[0], loaded[b]);
            mix<W>(out, near, w);
            put<T, W>(y + (start + b) * cols + c, out);
            if (++position == seq_len) {
                position = 0;
                clear_rows<W>(near);
            }
        }
    }
}

template <typename T>
__device__ __forceinline__ void conv_any(T *y, const T *x, const float *w, int64_t rows,
                                         int64_t cols, int taps, int64_t seq_len) {
    constexpr int W = wide<T>;
    const int64_t at = (int64_t)blockIdx.y * blockDim.x + threadIdx.x,
                  step = (int64_t)gridDim.y * blockDim.x;
    if (cols % W == 0 && at16(y, x)) {
        for (int64_t c = at * W; c < cols; c += step * W)
            conv_cols<T, W>(y, x, w, rows, cols, c, taps, seq_len);
    } else {
        for (int64_t c = at; c < cols; c += step)
            conv_cols<T, 1>(y, x, w, rows, cols, c, taps, seq_len);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    conv_f32(float *y, const float *x, const float *w, int64_t rows, int64_t cols, int taps,
             int64_t seq_len) {
    conv_any(y, x, w, rows, cols, taps, seq_len);
}

extern "C" __global__ void __launch_bounds__(128)
    conv_bf16(bf16 *y, const bf16 *x, const float *w, int64_t rows, int64_t cols, int taps,
              int64_t seq_len) {
    conv_any(y, x, w, rows, cols, taps, seq_len);
}

/* Single tokens of several sequences: stores the inputs of all rows in the rings, then sums. */
template <typename T>
__device__ __forceinline__ void conv_cached_any(T *y, T *ring, const T *x, const float *w,
                                                const int32_t *sequences, const int32_t *positions,
                                                int64_t rows, int64_t cols, int taps) {
    constexpr int RING = STRAIT_CONV_RING;
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int64_t i = 0; i < rows; i++)
        if (sequences[i] >= 0)
            ring[((int64_t)sequences[i] * RING + positions[i] % RING) * cols + c] = x[i * cols + c];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t first = (int64_t)sequences[i] * RING, position = positions[i];
        float sum[1], value[1];
        if (first < 0) continue;
        take<T, 1>(sum, x + i * cols + c);
        for (int j = 0; j < taps && j <= position; j++) {
            take<T, 1>(value, ring + (first + (position - j) % RING) * cols + c);
            sum[0] += w[j * cols + c] * value[0];
        }
        put<T, 1>(y + i * cols + c, sum);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    conv_cached_f32(float *y, float *ring, const float *x, const float *w, const int32_t *sequences,
                    const int32_t *positions, int64_t rows, int64_t cols, int taps) {
    conv_cached_any(y, ring, x, w, sequences, positions, rows, cols, taps);
}

extern "C" __global__ void __launch_bounds__(128)
    conv_cached_bf16(bf16 *y, bf16 *ring, const bf16 *x, const float *w, const int32_t *sequences,
                     const int32_t *positions, int64_t rows, int64_t cols, int taps) {
    conv_cached_any(y, ring, x, w, sequences, positions, rows, cols, taps);
}

/* Arguments of the gradient. */
template <typename T> struct conv_gradient {
    T *d_x;
    float *part; // [shares x taps x cols]
    const T *d_y, *x;
    const float *w;
    int64_t rows, cols, seq_len;
    int taps;
};

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

/* From the last row to the first: near[j] is the gradient j rows later. d_w_j sums x_i d_y_{i+j},
 * so the same window serves d_x and d_w. */
template <typename T, int W>
__device__ __forceinline__ void conv_cols_back(const conv_gradient<T> &g, int64_t c) {
    const row_share mine = my_rows(g.rows);
    float w[TAPS][W], near[TAPS][W], sums[TAPS][W], out[W], value[W];
    take_taps<W>(w, g.w, g.cols, c, g.taps);
    clear_rows<W>(sums);
    int64_t left = g.seq_len - (mine.end + g.seq_len - 1) %
                                   g.seq_len; // rows from the last one to the end of its sequence
#pragma unroll
    for (int j = 1; j < TAPS; j++)
        take_row<T, W>(near[j - 1], g.d_y, (mine.end - 1 + j) * g.cols + c,
                       j < left && j < g.taps && mine.end > mine.first);
    for (int64_t start = mine.end - 1; start >= mine.first; start -= BATCH) {
        lanes<T, W> loaded[BATCH], values[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (start - b < mine.first) break;
            loaded[b] = load<T, W>(g.d_y + (start - b) * g.cols + c);
            values[b] = load<T, W>(g.x + (start - b) * g.cols + c);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (start - b < mine.first) break;
            shift_rows<W>(near);
            widen(near[0], loaded[b]);
            widen(value, values[b]);
            mix<W>(out, near, w);
            put<T, W>(g.d_x + (start - b) * g.cols + c, out);
            add_products<W>(sums, near, value);
            if (++left > g.seq_len) {
                left = 1;
                clear_rows<W>(near);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        if (j < g.taps)
            put_floats<W>(g.part + ((int64_t)blockIdx.x * g.taps + j) * g.cols + c, sums[j]);
    }
}

template <typename T> __device__ __forceinline__ void conv_back_any(const conv_gradient<T> &g) {
    constexpr int W = wide<T>;
    const int64_t at = (int64_t)blockIdx.y * blockDim.x + threadIdx.x,
                  step = (int64_t)gridDim.y * blockDim.x;
    if (g.cols % W == 0 && at16(g.d_x, g.d_y, g.x)) {
        for (int64_t c = at * W; c < g.cols; c += step * W)
            conv_cols_back<T, W>(g, c);
    } else {
        for (int64_t c = at; c < g.cols; c += step)
            conv_cols_back<T, 1>(g, c);
    }
}

extern "C" __global__ void __launch_bounds__(128)
    conv_back_f32(float *d_x, float *part, const float *d_y, const float *x, const float *w,
                  int64_t rows, int64_t cols, int taps, int64_t seq_len) {
    conv_back_any<float>({d_x, part, d_y, x, w, rows, cols, seq_len, taps});
}

extern "C" __global__ void __launch_bounds__(128)
    conv_back_bf16(bf16 *d_x, float *part, const bf16 *d_y, const bf16 *x, const float *w,
                   int64_t rows, int64_t cols, int taps, int64_t seq_len) {
    conv_back_any<bf16>({d_x, part, d_y, x, w, rows, cols, seq_len, taps});
}
