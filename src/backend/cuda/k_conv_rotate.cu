/* k_conv_rotate.cu - the convolution of queries, keys and values and the rotation after it, in one
 * pass over memory, and the gradient of both in another. What the convolution gives, u, is not
 * stored: the gradient computes it again from rows that it reads anyway.
 *
 * A block takes a range of neighbouring rows, a thread W pairs of one head, both values of each:
 * the pairs of a head are those of L = dim / (2 W) neighbouring lanes of a warp, which only its
 * norm makes talk to each other. Lanes beyond the last head compute along, because shuffles need
 * all of them, and write nothing. The values of a thread are the W low ones, then the W high ones.
 */
#include "backend/cuda/conv_window.cuh"
#include "backend/cuda/copy_ahead.cuh"
#include "backend/cuda/k_conv_rotate.h"

constexpr int THREADS = STRAIT_CUDA_CONV_ROTATE_THREADS;
constexpr int HALO = TAPS - 1; // rows that a row of the convolution reads beside itself
constexpr int W = STRAIT_CUDA_CONV_ROTATE_PAIRS;
constexpr int ALL = 2 * W;

/* Rows in shared memory: one in use, the others on their way. */
template <typename T> constexpr unsigned AHEAD = 16 / (unsigned)sizeof(T);

using args = strait_cuda_conv_rotate_args;

/* A thread's values of a row as stored, and its place in shared memory for row n of its block. */
template <typename T> struct stored { lanes<T, W> low, high; };
template <typename T> using held_rows = stored<T>[AHEAD<T>][THREADS];

template <typename T> __device__ __forceinline__ void widen_all(float out[ALL], stored<T> in) {
    widen(out, in.low);
    widen(out + W, in.high);
}

/* The values of a thread, and where they are in their head. */
struct place {
    int col; // of the first low value, or another valid one
    int half;
    int head, lane, lanes; // lanes of a head
    bool is_valid, is_rotated;
    bool has_rotated; // some lane of the warp has
    float inverse;    // 1 / dim
};

__device__ __forceinline__ place my_place(const args &a) {
    const int thread = (int)blockIdx.y * (int)blockDim.x + (int)threadIdx.x;
    const int n_lanes = a.dim / ALL, head = thread / n_lanes, lane = thread % n_lanes;
    const bool is_valid = head * a.dim < a.cols, is_rotated = is_valid && head < a.n_rotated;
    return {(is_valid ? head * a.dim : 0) + lane * W,
            a.dim / 2,
            head,
            lane,
            n_lanes,
            is_valid,
            is_rotated,
            __any_sync(0xffffffffu, is_rotated) != 0,
            1.0f / (float)a.dim};
}

template <typename T> __device__ __forceinline__ stored<T> load_row(const T *row, const place &at) {
    return {load<T, W>(row), load<T, W>(row + at.half)};
}

template <typename T>
__device__ __forceinline__ void copy_row(stored<T> *to, const T *row, const place &at) {
    copy_ahead<T, W>(&to->low, row);
    copy_ahead<T, W>(&to->high, row + at.half);
}

template <typename T>
__device__ __forceinline__ void put_row(T *row, const place &at, const float in[ALL]) {
    put<T, W>(row, in);
    put<T, W>(row + at.half, in + W);
}

__device__ __forceinline__ void take_both(float w[TAPS][ALL], const args &a, const place &at) {
    clear_rows<ALL>(w);
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        if (j >= a.n_taps) break;
        take_floats<W>(w[j], a.taps + (int64_t)j * a.cols + at.col);
        take_floats<W>(w[j] + W, a.taps + (int64_t)j * a.cols + at.col + at.half);
    }
}

/* The angles of a thread's pairs at one position. */
struct angles {
    float c[W], s[W];
};

__device__ __forceinline__ angles take_angles(const args &a, const place &at, int position) {
    const int first = position * at.half + at.lane * W;
    angles t;
    take_floats<W>(t.c, a.cos + first);
    take_floats<W>(t.s, a.sin + first);
    return t;
}

/* The dot product of two heads, in every lane of theirs. L is their number of lanes, or 0: any. */
template <int L>
__device__ __forceinline__ float dot(const float x[ALL], const float y[ALL], int n_lanes) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < ALL; i++)
        sum += x[i] * y[i];
    return L == 0 ? warp_sum(sum, n_lanes) : warp_sum(sum, L);
}

/* Replaces u of one row by its norm, rotated, where the head is a query or a key. */
template <int L>
__device__ __forceinline__ void norm_turn(float u[ALL], const args &a, const place &at, float *rstd,
                                          angles t) {
    if (a.rstd != nullptr) {
        const float scale = rsqrtf(dot<L>(u, u, at.lanes) * at.inverse + a.epsilon);
        if (at.is_rotated && at.lane == 0) *rstd = scale;
#pragma unroll
        for (int i = 0; i < W; i++) {
            t.c[i] *= scale;
            t.s[i] *= scale;
        }
    }
    if (!at.is_rotated) return;
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float low = u[i], high = u[W + i];
        u[i] = low * t.c[i] - high * t.s[i];
        u[W + i] = high * t.c[i] + low * t.s[i];
    }
}

template <typename T, int L>
__device__ __forceinline__ void forward(const args &a, held_rows<T> *memory) {
    held_rows<T> &held = *memory;
    const row_share mine = my_rows(a.rows);
    const place at = my_place(a);
    const int64_t cols = a.cols;
    const int thread = (int)threadIdx.x;
    const unsigned n_rows = (unsigned)(mine.end - mine.first);
    const T *from = (const T *)a.x + mine.first * cols + at.col;
    T *to = (T *)a.out + mine.first * cols + at.col;
    float *rstd = a.rstd + mine.first * a.n_rotated + at.head;
    float w[TAPS][ALL], near[TAPS][ALL], out[ALL];
    int position = (int)(mine.first % a.seq_len);
    take_both(w, a, at);
    clear_rows<ALL>(near);
#pragma unroll
    for (int j = 1; j < TAPS; j++) // shifted to near[j] before the first row
        if (j <= position && n_rows > 0) widen_all<T>(near[j - 1], load_row(from - j * cols, at));
    for (unsigned n = 0; n < AHEAD<T> - 1; n++) {
        if (n < n_rows) copy_row(&held[n][thread], from + n * cols, at);
        close_copies();
    }
    const T *next = from + (AHEAD<T> - 1) * cols;
    angles turn = take_angles(a, at, position);
    for (unsigned n = 0; n < n_rows;) { // a sequence, or the part of one that is here
        const unsigned left = (unsigned)(a.seq_len - position);
        const unsigned end = n_rows - n < left ? n_rows : n + left;
#pragma unroll 4
        for (; n < end; n++) {
            position = position + 1 == a.seq_len ? 0 : position + 1;
            const angles ahead = take_angles(a, at, position); // on their way meanwhile
            wait_copies<(int)AHEAD<T> - 2>();
            shift_rows<ALL>(near);
            widen_all<T>(near[0], held[n % AHEAD<T>][thread]);
            if (n + AHEAD<T> - 1 < n_rows)
                copy_row(&held[(n + AHEAD<T> - 1) % AHEAD<T>][thread], next, at);
            close_copies();
            mix<ALL>(out, near, w);
            if (at.has_rotated) norm_turn<L>(out, a, at, rstd, turn);
            if (at.is_valid) put_row(to, at, out);
            next += cols;
            to += cols;
            rstd += a.n_rotated;
            turn = ahead;
        }
        clear_rows<ALL>(near);
    }
    wait_copies<0>();
}

/* The convolution at one row: x[j] is j rows before it, of the same sequence for j below `n`. */
template <typename T>
__device__ __forceinline__ void convolve(float u[ALL], const stored<T> x[TAPS],
                                         const float w[TAPS][ALL], int n) {
    float value[ALL];
    widen_all<T>(u, x[0]);
#pragma unroll
    for (int i = 0; i < ALL; i++)
        u[i] += w[0][i] * u[i];
#pragma unroll
    for (int j = 1; j < TAPS; j++) {
        if (j >= n) break;
        widen_all<T>(value, x[j]);
#pragma unroll
        for (int i = 0; i < ALL; i++)
            u[i] += w[j][i] * value[i];
    }
}

/* From d, the gradient of a row of the output, to that of u: through the rotation and the norm
 * (equations in ref_norm.c). `scale` is the head's rstd. */
template <int L>
__device__ __forceinline__ void turn_back(float d[ALL], const float u[ALL], const args &a,
                                          const place &at, const angles &t, float scale) {
    float v[ALL];
#pragma unroll
    for (int i = 0; i < W; i++) {
        v[i] = d[i] * t.c[i] + d[W + i] * t.s[i];
        v[W + i] = d[W + i] * t.c[i] - d[i] * t.s[i];
    }
    const float shift = a.rstd != nullptr
                            ? dot<L>(v, u, at.lanes) * scale * scale * scale * at.inverse
                            : 0.0f;
    if (!at.is_rotated) return;
#pragma unroll
    for (int i = 0; i < ALL; i++)
        d[i] = scale * v[i] - shift * u[i];
}

/* The steps of a block, from its last row to its first; before them the rows after the last one
 * whose gradients the convolution passes on to it. */
struct steps {
    int64_t top;
    unsigned n, halo;
};

__device__ __forceinline__ steps steps_of(const row_share &mine, int64_t seq_len) {
    if (mine.first == mine.end) return {0, 0, 0};
    const int64_t after = seq_len - 1 - (mine.end - 1) % seq_len;
    const int64_t halo = after < HALO ? after : HALO;
    return {mine.end - 1 + halo, (unsigned)(mine.end - mine.first + halo), (unsigned)halo};
}

/* Where the gradient reads and writes next: from the last row to the first. */
template <typename T> struct cursor {
    const T *d_y, *x; // of the next copies: of a row, and HALO rows before it
    T *d_x;
    const float *rstd;
};

/* Starts the copies for step n. Rows before the first one do not exist. */
template <typename T>
__device__ __forceinline__ void copy_step(held_rows<T> held[2], cursor<T> &c, const args &a,
                                          const place &at, const steps &all, unsigned n) {
    if (n < all.n) copy_row(&held[0][n % AHEAD<T>][threadIdx.x], c.d_y, at);
    if (n < all.n && n + HALO <= all.top) copy_row(&held[1][n % AHEAD<T>][threadIdx.x], c.x, at);
    close_copies();
    c.d_y -= a.cols;
    c.x -= a.cols;
}

__device__ __forceinline__ void put_sums(const args &a, const place &at, float sums[TAPS][ALL]) {
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        if (j >= a.n_taps || !at.is_valid) continue;
        float *to = a.part + ((int64_t)blockIdx.x * a.n_taps + j) * a.cols + at.col;
        put_floats<W>(to, sums[j]);
        put_floats<W>(to + at.half, sums[j] + W);
    }
}

/* The registers of the gradient. near[j] is the gradient of u j rows later. d_taps_j sums
 * x_i d_u_{i+j}, so the same window serves d_x and d_taps. */
template <typename T> struct window {
    float w[TAPS][ALL], near[TAPS][ALL], sums[TAPS][ALL];
    stored<T> x[TAPS]; // as floats they would take twice the registers
};

/* One row: `n` rows of its sequence end with it. is_own: not one of the halo. */
template <typename T, int L>
__device__ __forceinline__ void step_back(window<T> &r, const args &a, const place &at,
                                          const angles &turn, float scale, int n, T *d_x,
                                          bool is_own) {
    float u[ALL];
    if (at.has_rotated) {
        convolve<T>(u, r.x, r.w, n);
        turn_back<L>(r.near[0], u, a, at, turn, scale);
    }
    if (!is_own) return;
    mix<ALL>(u, r.near, r.w);
    if (at.is_valid) put_row(d_x, at, u);
    widen_all<T>(u, r.x[0]);
    add_products<ALL>(r.sums, r.near, u);
}

template <typename T>
__device__ __forceinline__ void start(window<T> &r, const args &a, const place &at,
                                      const steps &all) {
    take_both(r.w, a, at);
    clear_rows<ALL>(r.sums);
    clear_rows<ALL>(r.near);
#pragma unroll
    for (int j = 0; j < TAPS; j++) // x[j] is shifted to x[j - 1] before the first step
        r.x[j] = all.n > 0 && all.top >= j - 1 && j > 0
                     ? load_row((const T *)a.x + (all.top - (j - 1)) * a.cols + at.col, at)
                     : stored<T>{};
}

template <typename T, int L>
__device__ __forceinline__ void backward(const args &a, held_rows<T> *held) {
    const place at = my_place(a);
    const steps all = steps_of(my_rows(a.rows), a.seq_len);
    const int thread = (int)threadIdx.x;
    const int64_t top = all.top * a.cols + at.col;
    cursor<T> c = {(const T *)a.d_y + top, (const T *)a.x + top - (int64_t)HALO * a.cols,
                   (T *)a.out + top, a.rstd + all.top * a.n_rotated + at.head};
    window<T> r;
    start<T>(r, a, at, all);
    for (unsigned n = 0; n < AHEAD<T> - 1; n++)
        copy_step<T>(held, c, a, at, all, n);
    const bool has_scale = a.rstd != nullptr && at.is_rotated;
    int position = (int)(all.top % a.seq_len);
    float scale = has_scale && all.n > 0 ? *c.rstd : 1.0f;
    angles turn = take_angles(a, at, position);
    for (unsigned n = 0; n < all.n;) { // a sequence, or the part of one that is here
        const unsigned left = (unsigned)position + 1;
        const unsigned end = all.n - n < left ? all.n : n + left;
#pragma unroll 4
        for (; n < end; n++) {
            const int here = position;
            position = position > 0 ? position - 1 : a.seq_len - 1;
            c.rstd -= a.n_rotated;
            const float next_scale = has_scale && n + 1 < all.n ? *c.rstd : 1.0f;
            const angles ahead = take_angles(a, at, position); // on their way meanwhile
            wait_copies<(int)AHEAD<T> - 2>();
#pragma unroll
            for (int j = 0; j < TAPS - 1; j++)
                r.x[j] = r.x[j + 1];
            r.x[TAPS - 1] = held[1][n % AHEAD<T>][thread];
            shift_rows<ALL>(r.near);
            widen_all<T>(r.near[0], held[0][n % AHEAD<T>][thread]);
            copy_step<T>(held, c, a, at, all, n + AHEAD<T> - 1);
            step_back<T, L>(r, a, at, turn, scale, here < TAPS ? here + 1 : TAPS, c.d_x,
                            n >= all.halo);
            c.d_x -= a.cols;
            scale = next_scale;
            turn = ahead;
        }
        clear_rows<ALL>(r.near);
    }
    wait_copies<0>();
    put_sums(a, at, r.sums);
}

/* Heads of 64 and 128 values are the common ones. `blocks`: of a multiprocessor, at least; `n`:
 * tensors that are copied ahead. */
#define KERNEL(name, way, T, blocks, n)                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(args a) { \
        __shared__ held_rows<T> held[n];                                         \
        if (a.dim == 16 * ALL)                                                   \
            way<T, 16>(a, held);                                                 \
        else if (a.dim == 8 * ALL)                                               \
            way<T, 8>(a, held);                                                  \
        else                                                                     \
            way<T, 0>(a, held);                                                  \
    }

KERNEL(conv_rotate_f32, forward, float, 4, 1)
KERNEL(conv_rotate_bf16, forward, bf16, 4, 1)
KERNEL(conv_rotate_back_f32, backward, float, 3, 2)
KERNEL(conv_rotate_back_bf16, backward, bf16, 3, 2)
