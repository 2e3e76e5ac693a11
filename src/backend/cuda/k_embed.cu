/* k_embed.cu - rows of the embedding table by token, and their gradient.
 *
 * The gradient needs no sorting and no atomics: a block stands for a token's first place. It looks
 * whether the token stands anywhere before, and is done if so; else it gathers the token's later
 * places in their order and adds up their rows. */
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

constexpr int THREADS = 256;
constexpr int LOOKED = 4 * THREADS; // tokens looked at in one round, four a thread

/* Whether any of tokens[0..n) is `token`; the same answer in every thread. */
__device__ __forceinline__ bool stands_before(const int32_t *tokens, int64_t n, int32_t token) {
    for (int64_t first = 0; first < n; first += LOOKED) {
        bool is_here = false;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t at = first + i * THREADS + threadIdx.x;
            if (at < n) is_here = is_here || tokens[at] == token;
        }
        if (__syncthreads_or(is_here)) return true;
    }
    return false;
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
#pragma unroll 4
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

template <typename T>
__device__ __forceinline__ void embed_back(float *d_table, const T *d_y, const int32_t *tokens,
                                           int64_t rows, int64_t cols) {
    __shared__ int32_t list[2 * LOOKED];
    const int64_t n = blockIdx.x;
    const int32_t token = tokens[n];
    if (stands_before(tokens, n, token)) return;
    float *to = d_table + token * cols;
    const bool is_wide = cols % wide<T> == 0 && at16(d_table, d_y);
    int count = 0;
    for (int64_t first = n; first < rows; first += LOOKED) {
        count = gather(list, count, tokens, first, rows, token);
        if (count <= LOOKED && first + LOOKED < rows) continue; // the next round still fits
        if (is_wide)
            add_places<T, wide<T>>(to, d_y, list, count, cols);
        else
            add_places<T, 1>(to, d_y, list, count, cols);
        __syncthreads();
        count = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    embed_back_f32(float *d_table, const float *d_y, const int32_t *tokens, int64_t rows,
                   int64_t cols) {
    embed_back<float>(d_table, d_y, tokens, rows, cols);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    embed_back_bf16(float *d_table, const bf16 *d_y, const int32_t *tokens, int64_t rows,
                    int64_t cols) {
    embed_back<bf16>(d_table, d_y, tokens, rows, cols);
}
