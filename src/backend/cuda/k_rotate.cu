/* k_rotate.cu - rotary position embedding of queries and keys with its optional norm, and
 * gradients.
 *
 * One block per token; `group` lanes per head, a power of two. Lane l of a group holds pieces l,
 * l + group, ... of W pairs each. It holds both values of a pair, so that it can rotate them
 * without talking to other lanes. One piece per lane is enough for wide accesses, four for single
 * pairs. */
#include "backend/cuda/k_rotate.h"
#include "backend/cuda/vector.cuh"

template <int W> constexpr int pieces = W == 1 ? 4 : 1;

using rotate_args = strait_cuda_rotate_args;

/* One lane's part of a head. */
template <int W> struct part { float low[pieces<W>][W], high[pieces<W>][W]; };

/* The first pair of this lane's piece k. */
template <int W> __device__ __forceinline__ int pair_at(const rotate_args &params, int k) {
    return (k * params.group + (int)threadIdx.x % params.group) * W;
}

template <typename T, int W>
__device__ __forceinline__ void take_part(part<W> &p, const T *head, const rotate_args &params) {
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
__device__ __forceinline__ void put_part(T *head, const part<W> &p, const rotate_args &params) {
    const int half = params.dim / 2;
#pragma unroll
    for (int k = 0; k < pieces<W>; k++) {
        const int i = pair_at<W>(params, k);
        if (i >= half) continue;
        put<T, W>(head + i, p.low[k]);
        put<T, W>(head + half + i, p.high[k]);
    }
}

/* Rotates by the angles of `position`; backwards where direction is -1. is_shared: with the bits of
 * rotate_pair, as attention's backward pass. The other kernels keep the bits of earlier versions.
 */
template <int W, bool is_shared>
__device__ __forceinline__ void rotate_part(part<W> &p, const rotate_args &params, int64_t position,
                                            float direction) {
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
            const float a = p.low[k][w], b = p.high[k][w], sine = direction * s[w];
            if (is_shared) {
                rotate_pair(p.low[k][w], p.high[k][w], c[w], sine);
                continue;
            }
            p.low[k][w] = a * c[w] - b * sine;
            p.high[k][w] = b * c[w] + a * sine;
        }
    }
}

/* Multiplies p by the gain of its head, if there is one. */
template <int W>
__device__ __forceinline__ void times_gain(part<W> &p, const rotate_args &params, bool is_key) {
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

/* The dot product of two heads, in every lane of the group. */
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

/* p = factor * p + shift * x */
template <int W>
__device__ __forceinline__ void blend(part<W> &p, float factor, float shift, const part<W> &x) {
#pragma unroll
    for (int k = 0; k < pieces<W>; k++)
#pragma unroll
        for (int w = 0; w < W; w++) {
            p.low[k][w] = factor * p.low[k][w] + shift * x.low[k][w];
            p.high[k][w] = factor * p.high[k][w] + shift * x.high[k][w];
        }
}

/* Rotates the heads of a token, without a norm; backwards where direction is -1. */
template <typename T, int W>
__device__ __forceinline__ void rotate_pairs_token(T *y, const T *x, const rotate_args &params,
                                                   float direction) {
    const int n_rotated = params.n_query + params.n_key;
    const int n_heads = n_rotated + params.n_key, n_touched = y == x ? n_rotated : n_heads;
    const int64_t first = (int64_t)blockIdx.x * n_heads * params.dim;
    const int64_t position = blockIdx.x % (unsigned)params.seq_len;
    for (int h = (int)threadIdx.x / params.group; h < n_touched;
         h += (int)blockDim.x / params.group) {
        const int64_t at = first + (int64_t)h * params.dim;
        part<W> p;
        take_part<T, W>(p, x + at, params);
        if (h < n_rotated) rotate_part<W, (W > 1)>(p, params, position, direction);
        put_part<T, W>(y + at, p, params);
    }
}

template <typename T, int W>
__device__ __forceinline__ void rotate_token(T *y, float *rstd, const T *x,
                                             const rotate_args &params, float epsilon) {
    const int n_rotated = params.n_query + params.n_key, n_heads = n_rotated + params.n_key;
    const int groups = (int)blockDim.x / params.group;
    const int64_t row = blockIdx.x, first = row * n_heads * params.dim;
    const int64_t position = (unsigned)row % (unsigned)params.seq_len;
    /* Every lane of a warp runs the same number of rounds: shuffles need all of them. */
    for (int base = 0; base < n_heads; base += groups) {
        const int h = base + (int)threadIdx.x / params.group;
        const int64_t at = first + (int64_t)(h < n_heads ? h : 0) * params.dim;
        part<W> p;
        take_part<T, W>(p, x + at, params);
        const float sum = dot_parts<W>(p, p, params.group);
        const float scale = 1.0f / sqrtf(sum / (float)params.dim + epsilon);
        if (h < n_rotated) {
            blend<W>(p, scale, 0.0f, p);
            times_gain<W>(p, params, h >= params.n_query);
            rotate_part<W, false>(p, params, position, 1.0f);
            if (threadIdx.x % params.group == 0) rstd[row * n_rotated + h] = scale;
        }
        if (h < n_heads) put_part<T, W>(y + at, p, params);
    }
}

/* Adds d * x * scale to this lane's partial sums of d_gain. */
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

/* One head: rotates d_y back, adds to d_gain, then the gradient of the norm (equations in
 * ref_norm.c). */
template <typename T, int W, bool has_gain>
__device__ __forceinline__ void rotate_head_back(const back_args<T> &a, const rotate_args &params,
                                                 int64_t row, int h, part<W> sums[2]) {
    const int n_rotated = params.n_query + params.n_key, n_heads = n_rotated + params.n_key;
    const bool is_key = h >= params.n_query, is_rotated = h < n_rotated;
    const int64_t at = (row * n_heads + (h < n_heads ? h : 0)) * params.dim;
    const int64_t position = (unsigned)row % (unsigned)params.seq_len;
    part<W> d = {}, x = {};
    if (is_rotated || a.d_x != a.d_y) take_part<T, W>(d, a.d_y + at, params);
    if (is_rotated) take_part<T, W>(x, a.x + at, params);
    const float scale = is_rotated ? a.rstd[row * n_rotated + h] : 0.0f;
    if (is_rotated) {
        rotate_part<W, false>(d, params, position, -1.0f);
        if (has_gain && is_key) add_gain<W>(sums[1], d, x, scale);
        if (has_gain && !is_key) add_gain<W>(sums[0], d, x, scale);
        if (has_gain) times_gain<W>(d, params, is_key);
    }
    const float dot = dot_parts<W>(d, x, params.group) * scale / (float)params.dim;
    if (is_rotated) blend<W>(d, scale, -scale * scale * dot, x);
    if (is_rotated || (h < n_heads && a.d_x != a.d_y)) put_part<T, W>(a.d_x + at, d, params);
}

/* Writes the block's row of partial sums of d_gain: the groups' sums, added from the first group.
 * `shared` holds groups x 2 dim floats. */
template <int W>
__device__ __forceinline__ void put_gain(float *to, const rotate_args &params,
                                         const part<W> sums[2], float *shared) {
    const int mine = (int)threadIdx.x / params.group, groups = (int)blockDim.x / params.group;
    const int cols = 2 * params.dim;
    float *own = shared + mine * cols;
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
            sum += shared[g * cols + c];
        to[(int64_t)blockIdx.x * cols + c] = sum;
    }
}

/* `shared` is needed for gains only. */
template <typename T, int W, bool has_gain>
__device__ __forceinline__ void rotate_back_tokens(const back_args<T> &a, const rotate_args &params,
                                                   float *shared) {
    const int n_heads = params.n_query + 2 * params.n_key, groups = (int)blockDim.x / params.group;
    part<W> sums[2] = {};
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x)
        for (int base = 0; base < n_heads; base += groups)
            rotate_head_back<T, W, has_gain>(a, params, row, base + (int)threadIdx.x / params.group,
                                             sums);
    if (has_gain) put_gain<W>(a.partial, params, sums, shared);
}

#define ROTATIONS(T, suffix)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) rotate_pairs_##suffix(                      \
        T *y, const T *x, rotate_args params, float direction, int is_wide) {                     \
        if (is_wide)                                                                              \
            rotate_pairs_token<T, wide<T>>(y, x, params, direction);                              \
        else                                                                                      \
            rotate_pairs_token<T, 1>(y, x, params, direction);                                    \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) rotate_##suffix(                            \
        T *y, float *rstd, const T *x, rotate_args params, float epsilon, int is_wide) {          \
        if (is_wide)                                                                              \
            rotate_token<T, wide<T>>(y, rstd, x, params, epsilon);                                \
        else                                                                                      \
            rotate_token<T, 1>(y, rstd, x, params, epsilon);                                      \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        rotate_back_##suffix(T *d_x, float *partial, const T *d_y, const T *x, const float *rstd, \
                             int64_t rows, rotate_args params, int is_wide) {                     \
        __shared__ float shared[8192];                                                            \
        const back_args<T> a = {d_x, partial, d_y, x, rstd, rows};                                \
        if (is_wide)                                                                              \
            rotate_back_tokens<T, wide<T>, true>(a, params, shared);                              \
        else                                                                                      \
            rotate_back_tokens<T, 1, true>(a, params, shared);                                    \
    }                                                                                             \
    /* Without gains there are no sums, which take most registers, and more blocks fit. */        \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        rotate_back_plain_##suffix(T *d_x, const T *d_y, const T *x, const float *rstd,           \
                                   int64_t rows, rotate_args params, int is_wide) {               \
        const back_args<T> a = {d_x, nullptr, d_y, x, rstd, rows};                                \
        if (is_wide)                                                                              \
            rotate_back_tokens<T, wide<T>, false>(a, params, nullptr);                            \
        else                                                                                      \
            rotate_back_tokens<T, 1, false>(a, params, nullptr);                                  \
    }

ROTATIONS(float, f32)
ROTATIONS(bf16, bf16)
