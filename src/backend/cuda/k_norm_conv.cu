/* k_norm_conv.cu - a norm and the convolution after it (equations in ref_norm_conv.c).
 *
 * A block takes a range of neighbouring rows, a thread W columns of them, which it keeps for the
 * convolution. The norm needs a sum over each row: the block adds up R rows at a time, between
 * which it meets at one barrier. Meanwhile the next R rows are copied to shared memory. */
#include "backend/cuda/conv_window.cuh"
#include "backend/cuda/copy_ahead.cuh"
#include "backend/cuda/k_norm_conv.h"
#include "backend/cuda/row_sums.cuh"

constexpr int BEFORE = TAPS - 1; // rows that the convolution reads before its own

/* Groups of rows in shared memory: one in use, one on its way. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < STRAIT_CUDA_NORM_CONV_AHEAD
constexpr int STAGES = 1;
#else
constexpr int STAGES = 2;
#endif

using forward_args = strait_cuda_norm_conv_args;
using back_args = strait_cuda_norm_conv_back_args;

/* Rows of a group: as many bytes in both types. */
template <typename T> constexpr int group_rows = STRAIT_CUDA_NORM_CONV_BYTES / (int)sizeof(T);

/* Rounds to T and back. */
template <typename T, int W> __device__ __forceinline__ void round_to(float v[W]) {
    widen(v, narrow<T, W>(v));
}

/* A thread's place in shared memory for tensor t of row r of a group. */
template <typename T, int W, int TENSORS>
__device__ __forceinline__ lanes<T, W> *place(int group, int r, int t) {
    extern __shared__ uint4 memory[];
    const int n = ((group % STAGES) * group_rows<T> + r) * TENSORS + t;
    return (lanes<T, W> *)memory + n * (int)blockDim.x + (int)threadIdx.x;
}

/* A thread's part of the forward pass. Rows are counted from `start`, which is up to BEFORE rows
 * before the block's own. */
template <typename T, int W> struct forward_state {
    float w[TAPS][W], near[TAPS][W], gain[W];
    lanes<T, W> held[group_rows<T>]; // the input of the norm
    int64_t start;
    int n_rows, n_before, c;
    int64_t position; // in the sequence, of the next row
    bool is_valid;    // whether c is a column
};

/* The steps of a group come twice: is_plain says that all its rows are the block's own and of one
 * sequence, so that nothing is checked per row. */
template <typename T, int W>
__device__ __forceinline__ void copy_group(const forward_args &a, const forward_state<T, W> &own,
                                           int group) {
    const int64_t at = (own.start + group * group_rows<T>)*a.cols + own.c;
    const int n_left = own.is_valid ? own.n_rows - group * group_rows<T> : 0;
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        if (r >= n_left) break;
        copy_ahead<T, W>(place<T, W, 2>(group, r, 0), (const T *)a.x + at + r * a.cols);
        if (a.delta != nullptr)
            copy_ahead<T, W>(place<T, W, 2>(group, r, 1), (const T *)a.delta + at + r * a.cols);
    }
    close_copies();
}

/* x + delta, also written to sum; leaves the sums of squares. */
template <typename T, int W, bool is_plain>
__device__ __forceinline__ void sum_group(const forward_args &a, forward_state<T, W> &own,
                                          int group, float squares[group_rows<T>]) {
    T *to = (T *)a.sum + (own.start + group * group_rows<T>)*a.cols + own.c;
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        const int n = group * group_rows<T> + r;
        float v[W], all = 0;
        squares[r] = 0;
        if (!is_plain && n >= own.n_rows) continue;
        own.held[r] = *place<T, W, 2>(group, r, 0);
        widen(v, own.held[r]);
        if (a.delta != nullptr) {
            float more[W];
            widen(more, *place<T, W, 2>(group, r, 1));
#pragma unroll
            for (int i = 0; i < W; i++)
                v[i] += more[i];
            own.held[r] = narrow<T, W>(v);
            widen(v, own.held[r]);
            if (own.is_valid && (is_plain || n >= own.n_before))
                *(lanes<T, W> *)(to + r * a.cols) = own.held[r];
        }
#pragma unroll
        for (int i = 0; i < W; i++)
            all += v[i] * v[i];
        squares[r] = own.is_valid ? all : 0.0f;
    }
}

/* The norm of each row and the convolution. */
template <typename T, int W, bool is_plain>
__device__ __forceinline__ void mix_group(const forward_args &a, forward_state<T, W> &own,
                                          const float sums[group_rows<T>], int group) {
    const int64_t first = own.start + group * group_rows<T>;
    T *to = (T *)a.y + first * a.cols + own.c;
    const float inverse = 1.0f / (float)a.cols;
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        const int n = group * group_rows<T> + r;
        if (!is_plain && n >= own.n_rows) break;
        const float scale = 1.0f / sqrtf(sums[r] * inverse + a.epsilon);
        if (!is_plain && own.position == a.seq_len) {
            own.position = 0;
            clear_rows<W>(own.near);
        }
        own.position++;
        shift_rows<W>(own.near);
        widen(own.near[0], own.held[r]);
#pragma unroll
        for (int i = 0; i < W; i++)
            own.near[0][i] = own.near[0][i] * scale * own.gain[i];
        round_to<T, W>(own.near[0]);
        if (!is_plain && n < own.n_before) continue;
        float out[W];
        mix<W>(out, own.near, own.w);
        if (own.is_valid) put<T, W>(to + r * a.cols, out);
        if (threadIdx.x == 0) a.rstd[first + r] = scale;
    }
}

template <typename T, int W, bool is_plain>
__device__ __forceinline__ void forward_group(const forward_args &a, forward_state<T, W> &own,
                                              warp_parts<group_rows<T>> &parts, int group) {
    constexpr int R = group_rows<T>;
    float sums[R];
    copy_group<T, W>(a, own, group + STAGES - 1);
    wait_copies<STAGES - 1>();
    sum_group<T, W, is_plain>(a, own, group, sums);
    put_parts<R>(parts, group, sums);
    __syncthreads();
    take_sums<R>(sums, parts, group);
    mix_group<T, W, is_plain>(a, own, sums, group);
}

template <typename T, int W>
__device__ __forceinline__ void open_forward(const forward_args &a, forward_state<T, W> &own,
                                             row_share mine) {
    own.is_valid = (int)threadIdx.x * W < a.cols;
    own.c = own.is_valid ? (int)threadIdx.x * W : 0;
    own.position = mine.first % a.seq_len;
    own.n_before = own.position < BEFORE ? (int)own.position : BEFORE;
    own.position -= own.n_before;
    own.start = mine.first - own.n_before;
    own.n_rows = (int)(mine.end - own.start);
    if (STAGES > 1) copy_group<T, W>(a, own, 0);
    take_taps<W>(own.w, a.taps, a.cols, own.c, a.n_taps);
    take_floats<W>(own.gain, a.gain + own.c);
    clear_rows<W>(own.near);
}

template <typename T, int W> __device__ __forceinline__ void forward(const forward_args &a) {
    constexpr int R = group_rows<T>;
    __shared__ __align__(16) warp_parts<R> parts;
    const row_share mine = my_rows(a.rows);
    forward_state<T, W> own;
    if (mine.first == mine.end) return;
    open_forward<T, W>(a, own, mine);
    clear_parts<R>(parts);
    for (int group = 0; group * R < own.n_rows; group++) {
        if (group * R >= own.n_before && group * R + R <= own.n_rows &&
            own.position + R <= a.seq_len)
            forward_group<T, W, true>(a, own, parts, group);
        else
            forward_group<T, W, false>(a, own, parts, group);
    }
}

/* What a thread keeps of its W columns over all rows of its block. */
template <typename T, int W> struct back_state {
    float w[TAPS][W], gain[W]; // constants
    float near[TAPS][W];       // gradients j rows later
    float d_w[TAPS][W], d_gain[W];
    float scales[group_rows<T>], next[group_rows<T>]; // rstd of this group and the next one
    lanes<T, W> x[group_rows<T>], d[group_rows<T>];   // d: the gradient of the norm's output
    int64_t last;                                     // rows are counted from it, backwards
    int64_t left; // rows from the next one to the end of its sequence
    int n_rows, c;
    bool is_valid; // whether c is a column
};

/* Also loads the scales of the group. */
template <typename T, int W>
__device__ __forceinline__ void copy_group(const back_args &a, back_state<T, W> &own, int group) {
    const int64_t row = own.last - group * group_rows<T>, at = row * a.cols + own.c;
    const int n_left = own.n_rows - group * group_rows<T>;
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        own.next[r] = r < n_left ? a.rstd[row - r] : 0.0f;
        if (r >= n_left || !own.is_valid) continue;
        copy_ahead<T, W>(place<T, W, 3>(group, r, 0), (const T *)a.d_y + at - r * a.cols);
        copy_ahead<T, W>(place<T, W, 3>(group, r, 1), (const T *)a.x + at - r * a.cols);
        copy_ahead<T, W>(place<T, W, 3>(group, r, 2), (const T *)a.d_x + at - r * a.cols);
    }
    close_copies();
}

/* Row r of a group: the gradient of the norm's output, and the sums over rows. Returns this
 * thread's part of the dot product with x. */
template <typename T, int W>
__device__ __forceinline__ float grad_row(back_state<T, W> &own, int group, int r) {
    float x[W], d[W], b[W], dot = 0;
    own.x[r] = *place<T, W, 3>(group, r, 1);
    widen(x, own.x[r]);
    shift_rows<W>(own.near);
    widen(own.near[0], *place<T, W, 3>(group, r, 0));
    mix<W>(d, own.near, own.w);
    own.d[r] = narrow<T, W>(d);
    widen(d, own.d[r]);
#pragma unroll
    for (int i = 0; i < W; i++) {
        b[i] = x[i] * own.scales[r];
        own.d_gain[i] += d[i] * b[i];
        b[i] *= own.gain[i];
        dot += d[i] * own.gain[i] * x[i];
    }
    round_to<T, W>(b);
    add_products<W>(own.d_w, own.near, b);
    return dot;
}

template <typename T, int W, bool is_plain>
__device__ __forceinline__ void grad_group(const back_args &a, back_state<T, W> &own, int group,
                                           float dots[group_rows<T>]) {
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        dots[r] = 0;
        if (!is_plain && group * group_rows<T> + r >= own.n_rows) continue;
        const float dot = grad_row<T, W>(own, group, r);
        dots[r] = own.is_valid ? dot : 0.0f;
        own.left++;
        if (!is_plain && own.left > a.seq_len) {
            own.left = 1;
            clear_rows<W>(own.near);
        }
    }
}

/* d_x += rstd (d gain - x shift) */
template <typename T, int W, bool is_plain>
__device__ __forceinline__ void add_group(const back_args &a, const back_state<T, W> &own,
                                          const float dots[group_rows<T>], int group) {
    const int64_t at = (own.last - group * group_rows<T>)*a.cols + own.c;
    const float inverse = 1.0f / (float)a.cols;
    if (!own.is_valid) return;
#pragma unroll
    for (int r = 0; r < group_rows<T>; r++) {
        if (!is_plain && group * group_rows<T> + r >= own.n_rows) break;
        const float scale = own.scales[r], shift = dots[r] * scale * scale * inverse;
        float d[W], x[W], out[W];
        widen(out, *place<T, W, 3>(group, r, 2));
        widen(x, own.x[r]);
        widen(d, own.d[r]);
#pragma unroll
        for (int i = 0; i < W; i++)
            out[i] += scale * (d[i] * own.gain[i] - x[i] * shift);
        put<T, W>((T *)a.d_x + at - r * a.cols, out);
    }
}

template <typename T, int W, bool is_plain>
__device__ __forceinline__ void back_group(const back_args &a, back_state<T, W> &own,
                                           warp_parts<group_rows<T>> &parts, int group) {
    constexpr int R = group_rows<T>;
    float dots[R];
    if (STAGES == 1) copy_group<T, W>(a, own, group);
#pragma unroll
    for (int r = 0; r < R; r++)
        own.scales[r] = own.next[r];
    if (STAGES > 1) copy_group<T, W>(a, own, group + 1);
    wait_copies<STAGES - 1>();
    grad_group<T, W, is_plain>(a, own, group, dots);
    put_parts<R>(parts, group, dots);
    __syncthreads();
    take_sums<R>(dots, parts, group);
    add_group<T, W, is_plain>(a, own, dots, group);
}

/* The window holds the gradients that the first rows of the next block would have left in it. */
template <typename T, int W>
__device__ __forceinline__ void open_back(const back_args &a, back_state<T, W> &own,
                                          row_share mine) {
    own.is_valid = (int)threadIdx.x * W < a.cols;
    own.c = own.is_valid ? (int)threadIdx.x * W : 0;
    own.last = mine.end - 1;
    own.n_rows = (int)(mine.end - mine.first);
    if (STAGES > 1) copy_group<T, W>(a, own, 0);
    take_taps<W>(own.w, a.taps, a.cols, own.c, a.n_taps);
    take_floats<W>(own.gain, a.gain + own.c);
    clear_rows<W>(own.d_w);
    clear_rows<W>(own.near);
#pragma unroll
    for (int i = 0; i < W; i++)
        own.d_gain[i] = 0.0f;
    own.left = a.seq_len - (own.last + a.seq_len) % a.seq_len;
#pragma unroll
    for (int j = 1; j < TAPS; j++)
        if (j < own.left && j < a.n_taps && own.n_rows > 0)
            take<T, W>(own.near[j - 1], (const T *)a.d_y + (own.last + j) * a.cols + own.c);
}

template <typename T, int W>
__device__ __forceinline__ void put_columns(const back_args &a, const back_state<T, W> &own) {
    float *to = a.parts + (int64_t)blockIdx.x * (a.n_taps + 1) * a.cols + own.c;
    if (!own.is_valid) return;
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        if (j < a.n_taps) put_floats<W>(to + j * a.cols, own.d_w[j]);
    put_floats<W>(to + a.n_taps * a.cols, own.d_gain);
}

template <typename T, int W> __device__ __forceinline__ void back(const back_args &a) {
    constexpr int R = group_rows<T>;
    __shared__ __align__(16) warp_parts<R> parts;
    back_state<T, W> own;
    open_back<T, W>(a, own, my_rows(a.rows));
    clear_parts<R>(parts);
    for (int group = 0; group * R < own.n_rows; group++) {
        if (group * R + R <= own.n_rows && own.left + R <= a.seq_len)
            back_group<T, W, true>(a, own, parts, group);
        else
            back_group<T, W, false>(a, own, parts, group);
    }
    put_columns<T, W>(a, own);
}

constexpr int BACK_COLS = 4; // of a thread in the gradient
static_assert(STRAIT_NORM_CONV_WIDEST / BACK_COLS <= 32 * WARPS, "sums of all warps have a place");

#define NORM_CONV(T, suffix)                                                          \
    extern "C" __global__ void __launch_bounds__(STRAIT_NORM_CONV_WIDEST / wide<T>)   \
        norm_conv_##suffix(const __grid_constant__ forward_args a) {                  \
        forward<T, wide<T>>(a);                                                       \
    }                                                                                 \
    extern "C" __global__ void __launch_bounds__(STRAIT_NORM_CONV_WIDEST / BACK_COLS) \
        norm_conv_back_##suffix(const __grid_constant__ back_args a) {                \
        back<T, BACK_COLS>(a);                                                        \
    }

NORM_CONV(float, f32)
NORM_CONV(bf16, bf16)
