/* k_conv.cu - causal convolution over the rows of a sequence, each column by itself.
 *
 * A block takes a range of neighbouring rows, a thread W columns of them. Taps and the last rows
 * stay in registers, so that every value is read once. Equations in ref_conv.c. */
#include "backend/cuda/conv_window.cuh"
#include "backend/cuda/copy_ahead.cuh"

constexpr int THREADS = 128;
constexpr int AHEAD = 8; // rows in shared memory: one in use, the others on their way

/* A thread's place in shared memory for row n of its block. */
template <typename T, int W> using held_rows = lanes<T, W>[AHEAD][THREADS];

/* W columns of a row, or zeros where it is outside the sequence. */
template <typename T, int W>
__device__ __forceinline__ void take_row(float out[W], const T *x, int64_t at, bool is_valid) {
#pragma unroll
    for (int i = 0; i < W; i++)
        out[i] = 0.0f;
    if (is_valid) take<T, W>(out, x + at);
}

template <typename T, int W>
__device__ __forceinline__ void conv_cols(held_rows<T, W> &held, T *y, const T *x,
                                          const float *taps_of, int64_t rows, int64_t cols,
                                          int64_t c, int taps, int64_t seq_len) {
    const row_share mine = my_rows(rows);
    float w[TAPS][W], near[TAPS][W], out[W];
    take_taps<W>(w, taps_of, cols, c, taps);
    int64_t position = mine.first % seq_len;
#pragma unroll
    for (int j = 1; j < TAPS; j++) // shifted to near[j] before the first row
        take_row<T, W>(near[j - 1], x, (mine.first - j) * cols + c,
                       j <= position && j < taps && mine.first < mine.end);
    const int thread = (int)threadIdx.x;
    const T *from = x + mine.first * cols + c;
    const unsigned n_rows = (unsigned)(mine.end - mine.first);
    for (unsigned n = 0; n < AHEAD - 1; n++) {
        if (n < n_rows) copy_ahead<T, W>(&held[n][thread], from + n * cols);
        close_copies();
    }
#pragma unroll 4
    for (unsigned n = 0; n < n_rows; n++) {
        const unsigned next = n + AHEAD - 1;
        wait_copies<AHEAD - 2>();
        shift_rows<W>(near);
        widen(near[0], held[n % AHEAD][thread]);
        if (next < n_rows) copy_ahead<T, W>(&held[next % AHEAD][thread], from + next * cols);
        close_copies();
        mix<W>(out, near, w);
        put<T, W>(y + (mine.first + n) * cols + c, out);
        if (++position == seq_len) {
            position = 0;
            clear_rows<W>(near);
        }
    }
    wait_copies<0>();
}

template <typename T>
__device__ __forceinline__ void conv_any(T *y, const T *x, const float *w, int64_t rows,
                                         int64_t cols, int taps, int64_t seq_len) {
    constexpr int W = wide<T>;
    __shared__ held_rows<T, W> held;
    const int64_t at = (int64_t)blockIdx.y * blockDim.x + threadIdx.x,
                  step = (int64_t)gridDim.y * blockDim.x;
    if (cols % W == 0 && at16(y, x)) {
        for (int64_t c = at * W; c < cols; c += step * W)
            conv_cols<T, W>(held, y, x, w, rows, cols, c, taps, seq_len);
    } else {
        for (int64_t c = at; c < cols; c += step)
            conv_cols<T, 1>((held_rows<T, 1> &)held, y, x, w, rows, cols, c, taps, seq_len);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    conv_f32(float *y, const float *x, const float *w, int64_t rows, int64_t cols, int taps,
             int64_t seq_len) {
    conv_any(y, x, w, rows, cols, taps, seq_len);
}

extern "C" __global__ void __launch_bounds__(THREADS)
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

extern "C" __global__ void __launch_bounds__(THREADS)
    conv_cached_f32(float *y, float *ring, const float *x, const float *w, const int32_t *sequences,
                    const int32_t *positions, int64_t rows, int64_t cols, int taps) {
    conv_cached_any(y, ring, x, w, sequences, positions, rows, cols, taps);
}

extern "C" __global__ void __launch_bounds__(THREADS)
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

/* Starts the copies of the row n rows before the last one: d_y and x. */
template <typename T, int W>
__device__ __forceinline__ void copy_rows(const conv_gradient<T> &g, held_rows<T, W> held[2],
                                          int64_t last, unsigned n, unsigned n_rows) {
    if (n < n_rows) {
        copy_ahead<T, W>(&held[0][n % AHEAD][threadIdx.x], g.d_y + last - n * g.cols);
        copy_ahead<T, W>(&held[1][n % AHEAD][threadIdx.x], g.x + last - n * g.cols);
    }
    close_copies();
}

/* From the last row to the first: near[j] is the gradient j rows later. d_w_j sums x_i d_y_{i+j},
 * so the same window serves d_x and d_w. */
template <typename T, int W>
__device__ __forceinline__ void conv_cols_back(held_rows<T, W> held[2], const conv_gradient<T> &g,
                                               int64_t c) {
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
    const int thread = (int)threadIdx.x;
    const unsigned n_rows = (unsigned)(mine.end - mine.first);
    const int64_t last = (mine.end - 1) * g.cols + c;
    for (unsigned n = 0; n < AHEAD - 1; n++)
        copy_rows<T, W>(g, held, last, n, n_rows);
#pragma unroll 4
    for (unsigned n = 0; n < n_rows; n++) {
        wait_copies<AHEAD - 2>();
        shift_rows<W>(near);
        widen(near[0], held[0][n % AHEAD][thread]);
        widen(value, held[1][n % AHEAD][thread]);
        copy_rows<T, W>(g, held, last, n + AHEAD - 1, n_rows);
        mix<W>(out, near, w);
        put<T, W>(g.d_x + last - n * g.cols, out);
        add_products<W>(sums, near, value);
        if (++left > g.seq_len) {
            left = 1;
            clear_rows<W>(near);
        }
    }
    wait_copies<0>();
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        if (j < g.taps)
            put_floats<W>(g.part + ((int64_t)blockIdx.x * g.taps + j) * g.cols + c, sums[j]);
    }
}

template <typename T> __device__ __forceinline__ void conv_back_any(const conv_gradient<T> &g) {
    constexpr int W = wide<T>;
    __shared__ held_rows<T, W> held[2];
    const int64_t at = (int64_t)blockIdx.y * blockDim.x + threadIdx.x,
                  step = (int64_t)gridDim.y * blockDim.x;
    if (g.cols % W == 0 && at16(g.d_x, g.d_y, g.x)) {
        for (int64_t c = at * W; c < g.cols; c += step * W)
            conv_cols_back<T, W>(held, g, c);
    } else {
        for (int64_t c = at; c < g.cols; c += step)
            conv_cols_back<T, 1>((held_rows<T, 1> *)held, g, c);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    conv_back_f32(float *d_x, float *part, const float *d_y, const float *x, const float *w,
                  int64_t rows, int64_t cols, int taps, int64_t seq_len) {
    conv_back_any<float>({d_x, part, d_y, x, w, rows, cols, seq_len, taps});
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    conv_back_bf16(bf16 *d_x, float *part, const bf16 *d_y, const bf16 *x, const float *w,
                   int64_t rows, int64_t cols, int taps, int64_t seq_len) {
    conv_back_any<bf16>({d_x, part, d_y, x, w, rows, cols, seq_len, taps});
}
