/* k_rotate.cu - norm and rotation of queries and keys, and their gradient.
 *
 * A block a token; `group` lanes a head, a power of two. A lane holds the pieces of W pairs whose
 * number is its own modulo the group: both values of a pair, so that it can turn them alone. One
 * piece is enough where they are wide; four single pairs are where they are not. */
#include "backend/cuda/k_rotate.h"
#include "backend/cuda/vector.cuh"

template <int W> constexpr int pieces = W == 1 ? 4 : 1;

using turn_how = strait_cuda_turn;

/* One lane's part of a head. */
template <int W> struct part { float low[pieces<W>][W], high[pieces<W>][W]; };

template <int W> __device__ __forceinline__ int pair_at(const turn_how &params, int k) {
    return (k * params.group + (int)threadIdx.x % params.group) * W;
}

template <typename T, int W>
__device__ __forceinline__ void take_part(part<W> &p, const T *head, const turn_how &params) {
    const int half = params.dim / 2;
#pragma unroll
    for (int k = 0; k < pieces<W>; k++) {
        const int i = pair_at<W>(params, k);
        if (i < half) {
            take<T, W>(p.low[k], head + i);
            take<T, W>(p.high[k], head + half + i);
            continue;
        }
#pragma unroll
        for (int w = 0; w < W; w++)
            p.low[k][w] = p.high[k][w] = 0.0f;
    }
}

template <typename T, int W>
__device__ __forceinline__ void put_part(T *head, const part<W> &p, const turn_how &params) {
    const int half = params.dim / 2;
#pragma unroll
    for (int k = 0; k < pieces<W>; k++) {
        const int i = pair_at<W>(params, k);
        if (i >= half) continue;
        put<T, W>(head + i, p.low[k]);
        put<T, W>(head + half + i, p.high[k]);
    }
}

/* Turns by the angles of `position`; back where `way` is -1. */
template <int W>
__device__ __forceinline__ void turn(part<W> &p, const turn_how &params, int64_t position,
                                     float way) {
    const int half = params.dim / 2;
#pragma unroll
    for (int k = 0; k < pieces<W>; k++) {
        const int i = pair_at<W>(params, k);
        float c[W], s[W];
        if (i >= half) continue;
        take_floats<W>(c, params.cos + position * half + i);
        take_floats<W>(s, params.sin + position * half + i);
#pragma unroll
        for (int w = 0; w < W; w++) {
            const float a = p.low[k][w], b = p.high[k][w], sine = way * s[w];
            p.low[k][w] = a * c[w] - b * sine;
            p.high[k][w] = b * c[w] + a * sine;
        }
    }
}

/* p times the gain of its head, where there is one. */
template <int W>
__device__ __forceinline__ void times_gain(part<W> &p, const turn_how &params, bool is_key) {
    const int half = params.dim / 2;
    if (params.gain == nullptr) return;
    const float *gain = params.gain + (is_key ? params.dim : 0);
#pragma unroll
    for (int k = 0; k < pieces<W>; k++) {
        const int i = pair_at<W>(params, k);
        float low[W], high[W];
        if (i >= half) continue;
        take_floats<W>(low, gain + i);
        take_floats<W>(high, gain + half + i);
#pragma unroll
        for (int w = 0; w < W; w++) {
            p.low[k][w] *= low[w];
            p.high[k][w] *= high[w];
        }
    }
}

/* The dot of two heads, in every lane of the group. */
template <int W>
__device__ __forceinline__ float dot_parts(const part<W> &a, const part<W> &b, int group) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < pieces<W>; k++)
#pragma unroll
        for (int w = 0; w < W; w++)
            sum += a.low[k][w] * b.low[k][w] + a.high[k][w] * b.high[k][w];
    return warp_sum(sum, group);
}

/* p = by * p + shift * x */
template <int W>
__device__ __forceinline__ void blend(part<W> &p, float by, float shift, const part<W> &x) {
#pragma unroll
    for (int k = 0; k < pieces<W>; k++)
#pragma unroll
        for (int w = 0; w < W; w++) {
            p.low[k][w] = by * p.low[k][w] + shift * x.low[k][w];
            p.high[k][w] = by * p.high[k][w] + shift * x.high[k][w];
        }
}

/* Turns the heads of a token, without a norm; back where `way` is -1. */
template <typename T, int W>
__device__ __forceinline__ void turn_token(T *y, const T *x, const turn_how &params, float way) {
    const int n_turned = params.n_query + params.n_key;
    const int n_heads = n_turned + params.n_key, n_touched = y == x ? n_turned : n_heads;
    const int64_t first = (int64_t)blockIdx.x * n_heads * params.dim;
    const int64_t position = blockIdx.x % (unsigned)params.seq_len;
    for (int h = (int)threadIdx.x / params.group; h < n_touched;
         h += (int)blockDim.x / params.group) {
        const int64_t at = first + (int64_t)h * params.dim;
        part<W> p;
        take_part<T, W>(p, x + at, params);
        if (h < n_turned) turn<W>(p, params, position, way);
        put_part<T, W>(y + at, p, params);
    }
}

template <typename T, int W>
__device__ __forceinline__ void rotate_token(T *y, float *rstd, const T *x, const turn_how &params,
                                             float epsilon) {
    const int n_turned = params.n_query + params.n_key, n_heads = n_turned + params.n_key;
    const int groups = (int)blockDim.x / params.group;
    const int64_t row = blockIdx.x, first = row * n_heads * params.dim;
    const int64_t position = (unsigned)row % (unsigned)params.seq_len;
    /* Every lane of a warp makes the same number of rounds: shuffles need them all. */
    for (int base = 0; base < n_heads; base += groups) {
        const int h = base + (int)threadIdx.x / params.group;
        const int64_t at = first + (int64_t)(h < n_heads ? h : 0) * params.dim;
        part<W> p;
        take_part<T, W>(p, x + at, params);
        const float sum = dot_parts<W>(p, p, params.group);
        const float scale = 1.0f / sqrtf(sum / (float)params.dim + epsilon);
        if (h < n_turned) {
            blend<W>(p, scale, 0.0f, p);
            times_gain<W>(p, params, h >= params.n_query);
            turn<W>(p, params, position, 1.0f);
            if (threadIdx.x % params.group == 0) rstd[row * n_turned + h] = scale;
        }
        if (h < n_heads) put_part<T, W>(y + at, p, params);
    }
}

/* Adds d * x * scale to the sums of the gain. */
template <int W>
__device__ __forceinline__ void add_gain(part<W> &sums, const part<W> &d, const part<W> &x,
                                         float scale) {
#pragma unroll
    for (int k = 0; k < pieces<W>; k++)
#pragma unroll
        for (int w = 0; w < W; w++) {
            sums.low[k][w] += d.low[k][w] * x.low[k][w] * scale;
            sums.high[k][w] += d.high[k][w] * x.high[k][w] * scale;
        }
}

template <typename T> struct back_args {
    T *d_x;
    float *partial; // [blocks x 2 dim]
    const T *d_y, *x;
    const float *rstd;
    int64_t rows;
};

template <typename T, int W>
__device__ __forceinline__ void rotate_head_back(const back_args<T> &a, const turn_how &params,
                                                 int64_t row, int h, part<W> sums[2]) {
    const int n_turned = params.n_query + params.n_key, n_heads = n_turned + params.n_key;
    const bool is_key = h >= params.n_query, is_turned = h < n_turned;
    const int64_t at = (row * n_heads + (h < n_heads ? h : 0)) * params.dim;
    const int64_t position = (unsigned)row % (unsigned)params.seq_len;
    part<W> d, x;
    take_part<T, W>(d, a.d_y + at, params);
    take_part<T, W>(x, a.x + at, params);
    const float scale = is_turned ? a.rstd[row * n_turned + h] : 0.0f;
    if (is_turned) {
        turn<W>(d, params, position, -1.0f);
        if (params.gain != nullptr && is_key) add_gain<W>(sums[1], d, x, scale);
        if (params.gain != nullptr && !is_key) add_gain<W>(sums[0], d, x, scale);
        times_gain<W>(d, params, is_key);
    }
    const float dot = dot_parts<W>(d, x, params.group) * scale / (float)params.dim;
    if (is_turned) blend<W>(d, scale, -scale * scale * dot, x);
    if (is_turned || (h < n_heads && a.d_x != a.d_y)) put_part<T, W>(a.d_x + at, d, params);
}

/* Writes what the block's groups owe the gain, added up from the first group; `room` is for
 * groups x 2 dim floats. */
template <int W>
__device__ __forceinline__ void put_gain(float *to, const turn_how &params, const part<W> sums[2],
                                         float *capacity) {
    const int mine = (int)threadIdx.x / params.group, groups = (int)blockDim.x / params.group;
    const int cols = 2 * params.dim;
    float *own = capacity + mine * cols;
    for (int is_key = 0; is_key < 2; is_key++)
#pragma unroll
        for (int k = 0; k < pieces<W>; k++) {
            const int i = pair_at<W>(params, k), half = params.dim / 2;
            if (i >= half) continue;
#pragma unroll
            for (int w = 0; w < W; w++) {
                own[is_key * params.dim + i + w] = sums[is_key].low[k][w];
                own[is_key * params.dim + half + i + w] = sums[is_key].high[k][w];
            }
        }
    __syncthreads();
    for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) {
        float sum = 0;
        for (int g = 0; g < groups; g++)
            sum += capacity[g * cols + c];
        to[(int64_t)blockIdx.x * cols + c] = sum;
    }
}

template <typename T, int W>
__device__ __forceinline__ void rotate_back_tokens(const back_args<T> &a, const turn_how &params,
                                                   float *capacity) {
    const int n_heads = params.n_query + 2 * params.n_key, groups = (int)blockDim.x / params.group;
    part<W> sums[2] = {};
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x)
        for (int base = 0; base < n_heads; base += groups)
            rotate_head_back<T, W>(a, params, row, base + (int)threadIdx.x / params.group, sums);
    if (params.gain != nullptr) put_gain<W>(a.partial, params, sums, capacity);
}

#define ROTATIONS(T, suffix)                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        turn_##suffix(T *y, const T *x, turn_how params, float way, int is_wide) {                \
        if (is_wide)                                                                              \
            turn_token<T, wide<T>>(y, x, params, way);                                            \
        else                                                                                      \
            turn_token<T, 1>(y, x, params, way);                                                  \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) rotate_##suffix(                            \
        T *y, float *rstd, const T *x, turn_how params, float epsilon, int is_wide) {             \
        if (is_wide)                                                                              \
            rotate_token<T, wide<T>>(y, rstd, x, params, epsilon);                                \
        else                                                                                      \
            rotate_token<T, 1>(y, rstd, x, params, epsilon);                                      \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        rotate_back_##suffix(T *d_x, float *partial, const T *d_y, const T *x, const float *rstd, \
                             int64_t rows, turn_how params, int is_wide) {                        \
        __shared__ float capacity[8192];                                                          \
        const back_args<T> a = {d_x, partial, d_y, x, rstd, rows};                                \
        if (is_wide)                                                                              \
            rotate_back_tokens<T, wide<T>>(a, params, capacity);                                  \
        else                                                                                      \
            rotate_back_tokens<T, 1>(a, params, capacity);                                        \
    }

ROTATIONS(float, f32)
ROTATIONS(bf16, bf16)
