/* k_window.cu - codes joined by those of earlier tokens, and gradients of that.
 *
 * Where a code has 8, 16, ... or 256 columns aligned to 16 bytes, a lane takes 8 of them, and
 * n_lanes lanes of a warp compute one code of one window. Otherwise (n_lanes 0) a warp takes a row,
 * one column per lane. */
#include "backend/cuda/vector.cuh"
#include "backend/kernels.h"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECE = 8;

template <typename T> struct window_norm_args {
    T *both, *normeds;
    float *rstd;
    const float *z;
    int64_t rows, cols, both_cols;
    strait_window_params params;
};

template <typename T> struct window_norm_grads {
    float *d_z;
    const T *d_both, *d_normeds;
    const float *z, *rstd;
    int64_t rows, cols, both_cols;
    strait_window_params params;
};

/* Loads, and stores, eight values of either type. */
template <typename T> __device__ __forceinline__ void take_piece(float out[PIECE], const T *from) {
#pragma unroll
    for (int i = 0; i < PIECE; i += wide<T>)
        take<T, wide<T>>(out + i, from + i);
}

template <typename T> __device__ __forceinline__ void put_piece(T *to, const float in[PIECE]) {
#pragma unroll
    for (int i = 0; i < PIECE; i += wide<T>)
        put<T, wide<T>>(to + i, in + i);
}

/* The mean is over the values of the code, without its padding. */
__device__ __forceinline__ float rstd_of(float squares, const strait_window_params &params) {
    return 1.0f / sqrtf(squares / (float)params.keep + params.epsilon);
}

/* Recomputes the norms of earlier codes, which is cheaper than a second kernel that waits for them;
 * the same operations give the same bits. */
template <typename T>
__device__ __forceinline__ void window_norm_pieces(const window_norm_args<T> &g, int n_lanes) {
    const uint32_t taps = (uint32_t)g.params.taps;
    const uint32_t lane = threadIdx.x % (uint32_t)n_lanes;
    const int64_t code = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / n_lanes;
    const bool is_row = code < g.rows * g.params.taps;
    const int64_t n = is_row ? code / taps : 0, j = is_row ? code % taps : 0;
    const int64_t first = (int64_t)lane * PIECE;
    const bool is_valid = is_row && j <= n % g.params.seq_len;
    float v[PIECE] = {}, squares = 0;
    if (is_valid) take_piece<float>(v, g.z + (n - j) * g.cols + first);
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        v[i] = first + i < g.params.keep ? v[i] : 0.0f;
        squares += v[i] * v[i];
    }
    const float scale = rstd_of(warp_sum(squares, n_lanes), g.params);
    if (!is_row) return;
    if (j == 0 && lane == 0) g.rstd[n] = scale;
    put_piece<T>(g.both + n * g.both_cols + j * g.cols + first, v);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        v[i] *= scale;
    put_piece<T>(g.normeds + (n * taps + j) * g.cols + first, v);
}

template <typename T>
__device__ __forceinline__ void window_norm_row(const window_norm_args<T> &g) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= g.rows) return;
    const int64_t position = n % g.params.seq_len, narrow_cols = g.params.taps * g.cols;
    for (int64_t j = 0; j < g.params.taps; j++) {
        const bool is_valid = j <= position;
        const float *row = g.z + (n - (is_valid ? j : 0)) * g.cols;
        float squares = 0;
        for (int64_t c = lane; c < g.params.keep; c += 32)
            squares += row[c] * row[c];
        const float scale = is_valid ? rstd_of(warp_sum(squares), g.params) : 0.0f;
        if (j == 0 && lane == 0) g.rstd[n] = scale;
        for (int64_t c = lane; c < g.cols; c += 32) {
            float value = is_valid && c < g.params.keep ? row[c] : 0.0f;
            put<T, 1>(g.both + n * g.both_cols + j * g.cols + c, &value);
            value *= scale;
            put<T, 1>(g.normeds + n * narrow_cols + j * g.cols + c, &value);
        }
    }
}

/* Added in f32 in the order of taps, as in the reference loop. */
template <typename T> __device__ __forceinline__ void add_piece(float to[PIECE], const T *from) {
    float v[PIECE];
    take_piece<T>(v, from);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        to[i] += v[i];
}

/* The gradient of code n: sums over the windows that hold it, in order of tokens. */
template <typename T>
__device__ __forceinline__ void window_norm_pieces_back(const window_norm_grads<T> &g,
                                                        int n_lanes) {
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / n_lanes;
    const bool is_row = at < g.rows;
    const int64_t n = is_row ? at : 0, first = (int64_t)(threadIdx.x % n_lanes) * PIECE;
    const int64_t left = g.params.seq_len - n % g.params.seq_len;
    const int taps = is_row ? (int)(g.params.taps < left ? g.params.taps : left) : 0;
    float through[PIECE] = {}, direct[PIECE] = {}, z[PIECE], dot = 0;
    take_piece<float>(z, g.z + n * g.cols + first);
    const float scale = g.rstd[n];
#pragma unroll 4
    for (int j = 0; j < taps; j++) {
        add_piece<T>(through, g.d_normeds + ((n + j) * g.params.taps + j) * g.cols + first);
        add_piece<T>(direct, g.d_both + (n + j) * g.both_cols + j * g.cols + first);
    }
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        dot += first + i < g.params.keep ? through[i] * z[i] : 0.0f;
    dot = warp_sum(dot, n_lanes) * scale / (float)g.params.keep;
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        direct[i] = first + i < g.params.keep
                        ? direct[i] + scale * (through[i] - z[i] * scale * dot)
                        : 0.0f;
    if (is_row) put_piece<float>(g.d_z + n * g.cols + first, direct);
}

/* The sum, over the windows that hold code n, of the gradient of its value c. */
template <typename T>
__device__ __forceinline__ float gathered(const T *t, int64_t t_cols, int64_t cols, int64_t n,
                                          int64_t c, int64_t taps) {
    float sum = 0;
    for (int64_t j = 0; j < taps; j++) {
        float value;
        take<T, 1>(&value, t + (n + j) * t_cols + j * cols + c);
        sum += value;
    }
    return sum;
}

template <typename T>
__device__ __forceinline__ void window_norm_row_back(const window_norm_grads<T> &g) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (n >= g.rows) return;
    const int64_t left = g.params.seq_len - n % g.params.seq_len;
    const int64_t taps = g.params.taps < left ? g.params.taps : left,
                  narrow_cols = g.params.taps * g.cols;
    const float *row = g.z + n * g.cols;
    const float scale = g.rstd[n];
    float dot = 0;
    for (int64_t c = lane; c < g.params.keep; c += 32)
        dot += gathered(g.d_normeds, narrow_cols, g.cols, n, c, taps) * row[c];
    dot = warp_sum(dot) * scale / (float)g.params.keep;
    for (int64_t c = lane; c < g.cols; c += 32) {
        float value = 0;
        if (c < g.params.keep) {
            const float d = gathered(g.d_normeds, narrow_cols, g.cols, n, c, taps);
            value = gathered(g.d_both, g.both_cols, g.cols, n, c, taps) +
                    scale * (d - row[c] * scale * dot);
        }
        g.d_z[n * g.cols + c] = value;
    }
}

#define WINDOW_NORM_KERNELS(T, name)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS) window_norm_##name(                      \
        T *both, T *normeds, float *rstd, const float *z, int64_t rows, int64_t cols,              \
        int64_t both_cols, strait_window_params params, int n_lanes) {                             \
        const window_norm_args<T> g = {both, normeds, rstd, z, rows, cols, both_cols, params};     \
        n_lanes > 0 ? window_norm_pieces<T>(g, n_lanes) : window_norm_row<T>(g);                   \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS) window_norm_back_##name(                 \
        float *d_z, const T *d_both, const T *d_normeds, const float *z, const float *rstd,        \
        int64_t rows, int64_t cols, int64_t both_cols, strait_window_params params, int n_lanes) { \
        const window_norm_grads<T> g = {d_z,  d_both, d_normeds, z,     rstd,                      \
                                        rows, cols,   both_cols, params};                          \
        n_lanes > 0 ? window_norm_pieces_back<T>(g, n_lanes) : window_norm_row_back<T>(g);         \
    }

WINDOW_NORM_KERNELS(float, f32)
WINDOW_NORM_KERNELS(bf16, bf16)

/* Rows by blocks, columns by threads, so that indices are 32 bits wide: 64-bit divisions would cost
 * more than the copy. */
extern "C" __global__ void __launch_bounds__(256)
    window(float *y, const float *x, int64_t rows, int64_t y_cols, int64_t x_cols,
           int64_t seq_len) {
    for (int64_t n = blockIdx.y; n < rows; n += gridDim.y) {
        const uint32_t position = (uint32_t)(n % seq_len);
        for (uint32_t c = blockIdx.x * blockDim.x + threadIdx.x; c < y_cols;
             c += gridDim.x * blockDim.x) {
            const uint32_t j = c / (uint32_t)x_cols;
            y[n * y_cols + c] = j <= position ? x[(n - j) * x_cols + c % (uint32_t)x_cols] : 0.0f;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    window_back(float *d_x, const float *d_y, int64_t rows, int64_t x_cols, int64_t y_cols,
                int64_t seq_len) {
    const uint32_t taps = (uint32_t)y_cols / (uint32_t)x_cols;
    for (int64_t n = blockIdx.y; n < rows; n += gridDim.y) {
        const int64_t left = seq_len - n % seq_len;
        for (uint32_t c = blockIdx.x * blockDim.x + threadIdx.x; c < x_cols;
             c += gridDim.x * blockDim.x) {
            float sum = 0;
            for (uint32_t j = 0; j < taps && j < left; j++)
                sum += d_y[(n + j) * y_cols + j * x_cols + c];
            d_x[n * x_cols + c] = sum;
        }
    }
}
