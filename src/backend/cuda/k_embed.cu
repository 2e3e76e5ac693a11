/* k_embed.cu - rows of the embedding table by token, and their gradient.
 *
 * The gradient needs no sorting, and is the same every time: of each token it is noted where it
 * stands first and last. A block stands for a place; that of a token's first place gathers the
 * others up to the last, in their order, and adds up their rows. */
#include "backend/cuda/lanes.cuh"

/* W values of one row of the table, as the type that is wanted. */
template <typename T, typename F, int W>
__device__ __forceinline__ void embed_piece(T *y, const F *from) {
    float v[W];
    if constexpr (sizeof(F) == 4)
        take_floats<W>(v, from);
    else
        take<F, W>(v, from);
    if constexpr (sizeof(T) == 4)
        put_floats<W>(y, v);
    else
        put<T, W>(y, v);
}

template <typename T, typename F, int W>
__device__ __forceinline__ void embed(T *y, const F *table, const int32_t *tokens, int64_t rows,
                                      int64_t cols) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t n = blockIdx.y; n < rows; n += gridDim.y)
        for (int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W; c < cols; c += step)
            embed_piece<T, F, W>(y + n * cols + c, table + tokens[n] * cols + c);
}

#define EMBED(T, F, suffix)                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        embed_##suffix(T *y, const F *table, const int32_t *tokens, int64_t rows, int64_t cols) { \
        constexpr int W = sizeof(T) + sizeof(F) == 8 ? 4 : 8;                                     \
        if (cols % W == 0 && at16(y, table))                                                      \
            embed<T, F, W>(y, table, tokens, rows, cols);                                         \
        else                                                                                      \
            embed<T, F, 1>(y, table, tokens, rows, cols);                                         \
    }

EMBED(float, float, f32)
EMBED(bf16, bf16, bf16)
EMBED(bf16, float, f32_to_bf16)
EMBED(float, bf16, bf16_to_f32)

/* The same less x. */
template <typename T, int W>
__device__ __forceinline__ void embed_minus(T *y, const float *table, const int32_t *tokens,
                                            const T *x, int64_t rows, int64_t cols) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float v[W], less[W];
        take_floats<W>(v, table + tokens[row] * cols + c);
        take<T, W>(less, x + row * cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] -= less[i];
        put<T, W>(y + row * cols + c, v);
    });
}

#define EMBED_MINUS(T, suffix)                                                                     \
    extern "C" __global__ void __launch_bounds__(256) embed_minus_##suffix(                        \
        T *y, const float *table, const int32_t *tokens, const T *x, int64_t rows, int64_t cols) { \
        if (cols % wide<T> == 0 && at16(y, table, x))                                              \
            embed_minus<T, wide<T>>(y, table, tokens, x, rows, cols);                              \
        else                                                                                       \
            embed_minus<T, 1>(y, table, tokens, x, rows, cols);                                    \
    }

EMBED_MINUS(float, f32)
EMBED_MINUS(bf16, bf16)

/* What a token's gains make of its row. */
template <typename T> struct gain_args {
    T *y;
    const T *x;
    const float *table;
    const int32_t *tokens;
    int64_t rows, y_cols, x_cols, cols;
};

template <typename T, int W> __device__ __forceinline__ void gain(const gain_args<T> &a) {
    over_rows<W>(a.rows, a.cols, [=](int64_t row, int64_t c) {
        float by[W], v[W];
        take_floats<W>(by, a.table + a.tokens[row] * a.cols + c);
        take<T, W>(v, a.x + row * a.x_cols + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] *= 1.0f + by[i];
        put<T, W>(a.y + row * a.y_cols + c, v);
    });
}

template <typename T, int W>
__device__ __forceinline__ void gain_back(T *d_x, T *d_rows, const T *d_y, const T *x,
                                          const float *table, const int32_t *tokens, int64_t rows,
                                          int64_t cols) {
    over_rows<W>(rows, cols, [=](int64_t row, int64_t c) {
        float by[W], d[W], v[W];
        take_floats<W>(by, table + tokens[row] * cols + c);
        take<T, W>(d, d_y + row * cols + c);
        take<T, W>(v, x + row * cols + c);
#pragma unroll
        for (int i = 0; i < W; i++) {
            v[i] *= d[i];
            d[i] *= 1.0f + by[i];
        }
        put<T, W>(d_x + row * cols + c, d);
        put<T, W>(d_rows + row * cols + c, v);
    });
}

#define GAIN_ROWS(T, suffix)                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                            \
        gain_rows_##suffix(T *y, const T *x, const float *table, const int32_t *tokens,          \
                           int64_t rows, int64_t y_cols, int64_t x_cols, int64_t cols) {         \
        const gain_args<T> args = {y, x, table, tokens, rows, y_cols, x_cols, cols};             \
        if ((cols | y_cols | x_cols) % wide<T> == 0 && at16(y, x, table))                        \
            gain<T, wide<T>>(args);                                                              \
        else                                                                                     \
            gain<T, 1>(args);                                                                    \
    }                                                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                            \
        gain_rows_back_##suffix(T *d_x, T *d_rows, const T *d_y, const T *x, const float *table, \
                                const int32_t *tokens, int64_t rows, int64_t cols) {             \
        if (cols % wide<T> == 0 && at16(d_x, d_rows, d_y, x, table))                             \
            gain_back<T, wide<T>>(d_x, d_rows, d_y, x, table, tokens, rows, cols);               \
        else                                                                                     \
            gain_back<T, 1>(d_x, d_rows, d_y, x, table, tokens, rows, cols);                     \
    }

GAIN_ROWS(float, f32)
GAIN_ROWS(bf16, bf16)

constexpr int THREADS = 256;
constexpr int LOOKED = 4 * THREADS; // tokens looked at in one round, four a thread

/* Where each token that occurs stands first and last, by token; others are not touched. */
extern "C" __global__ void __launch_bounds__(THREADS)
    embed_forget(int32_t *first, int32_t *last, const int32_t *tokens, int64_t rows) {
    const int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (n >= rows) return;
    first[tokens[n]] = INT32_MAX;
    last[tokens[n]] = -1;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    embed_note(int32_t *first, int32_t *last, const int32_t *tokens, int64_t rows) {
    const int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (n >= rows) return;
    atomicMin(first + tokens[n], (int32_t)n);
    atomicMax(last + tokens[n], (int32_t)n);
}

/* Appends to list[count..) the places in [first, first + LOOKED) where `token` stands, in order;
 * returns how many there are then. Thread t looks at places 4 t to 4 t + 3 of the round. */
__device__ __forceinline__ int gather(int32_t *list, int count, const int32_t *tokens,
                                      int64_t first, int64_t end, int32_t token) {
    __shared__ int found[THREADS / 32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t own = first + 4 * (int64_t)threadIdx.x;
    unsigned mine = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (own + i < end && tokens[own + i] == token) mine |= 1u << i;
    int sum = __popc(mine); // then of the lanes up to this one
    for (int by = 1; by < 32; by *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += before;
    }
    if (lane == 31) found[warp] = sum;
    __syncthreads();
    int at = count + sum - __popc(mine), total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        if (w < warp) at += found[w];
        total += found[w];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (mine >> i & 1u) list[at++] = (int32_t)(own + i);
    __syncthreads();
    return count + total;
}

/* Adds rows list[0..count) of d_y, in order, to one row of the table's gradient. */
template <typename T, int W>
__device__ __forceinline__ void add_places(float *to, const T *d_y, const int32_t *list, int count,
                                           int64_t cols) {
    for (int64_t c = (int64_t)threadIdx.x * W; c < cols; c += THREADS * W) {
        float sum[W];
        take_floats<W>(sum, to + c);
#pragma unroll(W == 8 ? 8 : 4)
        for (int i = 0; i < count; i++) {
            float d[W];
            take<T, W>(d, d_y + list[i] * cols + c);
#pragma unroll
            for (int w = 0; w < W; w++)
                sum[w] += d[w];
        }
        put_floats<W>(to + c, sum);
    }
}

template <typename T> struct back_args {
    float *d_table;
    const T *d_y;
    const int32_t *tokens, *first, *last;
    int64_t cols;
};

template <typename T>
__device__ __forceinline__ void add_list(const back_args<T> &a, int32_t token, const int32_t *list,
                                         int count) {
    float *to = a.d_table + token * a.cols;
    if (a.cols % wide<T> == 0 && at16(a.d_table, a.d_y))
        add_places<T, wide<T>>(to, a.d_y, list, count, a.cols);
    else
        add_places<T, 1>(to, a.d_y, list, count, a.cols);
}

template <typename T> __device__ __forceinline__ void embed_back(const back_args<T> &a) {
    __shared__ int32_t list[2 * LOOKED];
    const int64_t n = blockIdx.x;
    const int32_t token = a.tokens[n];
    if (a.first[token] != n) return;
    const int64_t end = a.last[token] + 1;
    int count = 0;
    for (int64_t from = n; from < end; from += LOOKED) {
        count = gather(list, count, a.tokens, from, end, token);
        if (count <= LOOKED && from + LOOKED < end) continue; // the next round still fits
        add_list<T>(a, token, list, count);
        __syncthreads();
        count = 0;
    }
}

#define EMBED_BACK(T, suffix)                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                              \
        embed_back_##suffix(float *d_table, const T *d_y, const int32_t *tokens,       \
                            const int32_t *first, const int32_t *last, int64_t cols) { \
        embed_back<T>({d_table, d_y, tokens, first, last, cols});                      \
    }

EMBED_BACK(float, f32)
EMBED_BACK(bf16, bf16)
