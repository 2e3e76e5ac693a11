/* k_autoencoder.cu - kernels of trained codecs: difference and norm, silu into columns, gradients
 * through a norm and a silu at once. */
#include "backend/cuda/k_autoencoder.h"
#include "backend/cuda/vector.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

/* strait_cuda_subtract_norm_args with typed pointers. */
template <typename T> struct subtract_norm_args {
    T *delta, *normed;
    float *rstd;
    const T *y, *x;
    int cols, delta_cols;
    float epsilon;
};

/* Piece c of a row: writes its part of delta and returns its sum of squares. */
template <typename T, int W>
__device__ __forceinline__ float subtract_piece(const subtract_norm_args<T> &a, int64_t row, int c,
                                                lanes<T, W> y) {
    float v[W], x[W], squares = 0;
    widen(v, y);
    take<T, W>(x, a.x + row * a.cols + c);
#pragma unroll
    for (int i = 0; i < W; i++) {
        squares += v[i] * v[i];
        x[i] = v[i] - x[i];
    }
    put<T, W>(a.delta + row * a.delta_cols + c, x);
    return squares;
}

template <typename T, int W>
__device__ __forceinline__ void scale_piece(const subtract_norm_args<T> &a, int64_t at,
                                            lanes<T, W> y, float scale) {
    float v[W];
    widen(v, y);
#pragma unroll
    for (int i = 0; i < W; i++)
        v[i] *= scale;
    put<T, W>(a.normed + at, v);
}

/* One block per row. Each thread keeps some of it in registers between the two passes; the rest is
 * read twice. */
template <typename T, int W>
__device__ __forceinline__ void subtract_norm_row(const subtract_norm_args<T> &a) {
    __shared__ float shared[32];
    constexpr int PIECES = W == 1 ? 4 : 16 / W;
    const int64_t row = blockIdx.x, first = row * a.cols;
    const int step = (int)blockDim.x * W, own = (int)threadIdx.x * W;
    lanes<T, W> held[PIECES];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int c = j * step + own;
        if (c >= a.cols) continue;
        held[j] = load<T, W>(a.y + first + c);
        squares += subtract_piece<T, W>(a, row, c, held[j]);
    }
    for (int c = PIECES * step + own; c < a.cols; c += step)
        squares += subtract_piece<T, W>(a, row, c, load<T, W>(a.y + first + c));
    if (a.normed == nullptr) return; // uniform in the whole grid
    const float scale = 1.0f / sqrtf(block_sum(squares, shared) / (float)a.cols + a.epsilon);
    if (threadIdx.x == 0) a.rstd[row] = scale;
#pragma unroll
    for (int j = 0; j < PIECES; j++)
        if (j * step + own < a.cols) scale_piece<T, W>(a, first + j * step + own, held[j], scale);
    for (int c = PIECES * step + own; c < a.cols; c += step)
        scale_piece<T, W>(a, first + c, load<T, W>(a.y + first + c), scale);
}

template <typename T>
__device__ __forceinline__ void subtract_norm(const subtract_norm_args<T> &a) {
    if ((a.cols | a.delta_cols) % wide<T> == 0 && at16(a.delta, a.normed, a.y, a.x))
        subtract_norm_row<T, wide<T>>(a);
    else
        subtract_norm_row<T, 1>(a);
}

/* strait_cuda_silu_cols_args with typed pointers. */
template <typename T> struct silu_args {
    T *y;
    const T *x;
    const void *beside;
    int64_t rows, y_cols, cols, first, beside_cols;
    int is_beside_f32;
};

/* Piece c of a row of [silu(x), beside]. */
template <typename T, int W>
__device__ __forceinline__ void silu_piece(const silu_args<T> &a, int64_t row, int64_t c) {
    const int64_t behind = row * a.beside_cols + c - a.cols;
    float v[W];
    if (c < a.cols) {
        take<T, W>(v, a.x + row * a.cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] *= sigmoid(v[i]);
    } else if (a.is_beside_f32) {
        take_floats<W>(v, (const float *)a.beside + behind);
    } else {
        take<T, W>(v, (const T *)a.beside + behind);
    }
    put<T, W>(a.y + row * a.y_cols + a.first + c, v);
}

/* Wide accesses need every width and offset to be a multiple of their length. */
template <typename T> __device__ __forceinline__ void silu_columns(const silu_args<T> &a) {
    const int64_t all = a.y_cols | a.cols | a.first | a.beside_cols;
    if (all % wide<T> == 0 && at16(a.y, a.x, a.beside))
        over_rows<wide<T>>(a.rows, a.cols + a.beside_cols,
                           [=](int64_t row, int64_t c) { silu_piece<T, wide<T>>(a, row, c); });
    else
        over_rows<1>(a.rows, a.cols + a.beside_cols,
                     [=](int64_t row, int64_t c) { silu_piece<T, 1>(a, row, c); });
}

/* silu'(x) */
__device__ __forceinline__ float silu_slope(float x) {
    const float open = sigmoid(x);
    return open * (1.0f + x * (1.0f - open));
}

template <typename T, int W>
__device__ __forceinline__ void silu_pieces_back(T *d_x, const T *d_y, const T *x, int64_t rows,
                                                 int64_t y_cols, int64_t cols, int64_t first) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float v[W], d[W];
        take<T, W>(v, x + row * cols + c);
        take<T, W>(d, d_y + row * y_cols + first + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            d[i] *= silu_slope(v[i]);
        put<T, W>(d_x + row * cols + c, d);
    });
}

/* strait_cuda_norm_silu_args with typed pointers. */
template <typename T> struct norm_silu_args {
    T *scaled, *d_a, *d_y;
    const T *d_h, *a, *n;
    const float *rstd;
    const T *plus;
    int64_t rows, cols, width;
};

/* Computes to = factor * row + plus for one row by a warp. The first PIECES pieces are loaded
 * before the factor is known, to overlap with its computation; the rest is read afterwards. */
template <typename T, int W> struct held_row {
    static constexpr int PIECES = 8;
    lanes<T, W> part[PIECES];

    __device__ __forceinline__ void preload(const T *row, int64_t cols) {
        const int64_t own = (int64_t)(threadIdx.x % 32) * W;
#pragma unroll
        for (int j = 0; j < PIECES; j++)
            if (j * 32 * W + own < cols) part[j] = load<T, W>(row + j * 32 * W + own);
    }

    __device__ __forceinline__ void put_times(T *to, const T *row, const T *plus, int64_t cols,
                                              float factor) {
        const int64_t own = (int64_t)(threadIdx.x % 32) * W;
#pragma unroll
        for (int j = 0; j < PIECES; j++) {
            const int64_t c = j * 32 * W + own;
            if (c < cols) put_one(to, plus, c, part[j], factor);
        }
        for (int64_t c = PIECES * 32 * W + own; c < cols; c += 32 * W)
            put_one(to, plus, c, load<T, W>(row + c), factor);
    }

    static __device__ __forceinline__ void put_one(T *to, const T *plus, int64_t c, lanes<T, W> in,
                                                   float factor) {
        float v[W], more[W];
        widen(v, in);
        if (plus != nullptr) take<T, W>(more, plus + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = v[i] * factor + (plus != nullptr ? more[i] : 0.0f);
        put<T, W>(to + c, v);
    }
};

/* One warp per row: writes d_a and scaled, and returns a . d_a in every lane. */
template <typename T, int W>
__device__ __forceinline__ float norm_silu_row(const norm_silu_args<T> &g, int64_t row) {
    const int lane = (int)threadIdx.x % 32;
    const float scale = g.rstd[row];
    float dot = 0;
    for (int64_t c = (int64_t)lane * W; c < g.cols; c += 32 * W) {
        float a[W], d[W];
        take<T, W>(a, g.a + row * g.cols + c);
        take<T, W>(d, g.d_h + row * g.cols + c);
#pragma unroll
        for (int i = 0; i < W; i++) {
            d[i] *= silu_slope(a[i]);
            dot += a[i] * d[i];
        }
        put<T, W>(g.d_a + row * g.cols + c, d);
#pragma unroll
        for (int i = 0; i < W; i++)
            d[i] *= scale;
        put<T, W>(g.scaled + row * g.cols + c, d);
    }
    return warp_sum(dot);
}

template <typename T>
__device__ __forceinline__ float silu_dot(const norm_silu_args<T> &g, int64_t row) {
    if (g.cols % wide<T> == 0 && at16(g.scaled, g.d_a, g.d_h, g.a))
        return norm_silu_row<T, wide<T>>(g, row);
    return norm_silu_row<T, 1>(g, row);
}

template <typename T, int W>
__device__ __forceinline__ void norm_silu_wide(const norm_silu_args<T> &g, int64_t row) {
    held_row<T, W> held;
    const int64_t at = row * g.width;
    held.preload(g.n + at, g.width);
    const float shift = -g.rstd[row] * silu_dot(g, row) / (float)g.width;
    held.put_times(g.d_y + at, g.n + at, g.plus != nullptr ? g.plus + at : nullptr, g.width, shift);
}

/* Rows of a block belong to its warps, so the last block may have idle warps. */
template <typename T> __device__ __forceinline__ void norm_silu(const norm_silu_args<T> &g) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= g.rows) return;
    if (g.width % wide<T> == 0 && at16(g.d_y, g.n, g.plus))
        norm_silu_wide<T, wide<T>>(g, row);
    else
        norm_silu_wide<T, 1>(g, row);
}

/* Wide accesses need every width and offset to be a multiple of their length. */
template <typename T> __device__ __forceinline__ bool in_pieces(int64_t a, int64_t b, int64_t c) {
    return (a | b | c) % wide<T> == 0;
}

#define AUTOENCODER_KERNELS(T, name)                                                            \
    extern "C" __global__ void __launch_bounds__(512)                                           \
        subtract_norm_##name(strait_cuda_subtract_norm_args a) {                                \
        subtract_norm<T>({(T *)a.delta, (T *)a.normed, a.rstd, (const T *)a.y, (const T *)a.x,  \
                          a.cols, a.delta_cols, a.epsilon});                                    \
    }                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS)                                       \
        silu_cols_##name(strait_cuda_silu_cols_args a) {                                        \
        silu_columns<T>({(T *)a.y, (const T *)a.x, a.beside, a.rows, a.y_cols, a.cols, a.first, \
                         a.beside_cols, a.is_beside_f32});                                      \
    }                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS)                                       \
        silu_cols_back_##name(T *d_x, const T *d_y, const T *x, int64_t rows, int64_t y_cols,   \
                              int64_t cols, int64_t first) {                                    \
        if (in_pieces<T>(y_cols, cols, first) && at16(d_x, d_y, x))                             \
            silu_pieces_back<T, wide<T>>(d_x, d_y, x, rows, y_cols, cols, first);               \
        else                                                                                    \
            silu_pieces_back<T, 1>(d_x, d_y, x, rows, y_cols, cols, first);                     \
    }                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 3)                                    \
        norm_silu_back_##name(strait_cuda_norm_silu_args g) {                                   \
        norm_silu<T>({(T *)g.scaled, (T *)g.d_a, (T *)g.d_y, (const T *)g.d_h, (const T *)g.a,  \
                      (const T *)g.n, g.rstd, (const T *)g.plus, g.rows, g.cols, g.width});     \
    }

AUTOENCODER_KERNELS(float, f32)
AUTOENCODER_KERNELS(bf16, bf16)
