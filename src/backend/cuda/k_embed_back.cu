/* k_embed_back.cu - the gradient of a table of token rows: d_table[t] += sum of d_y over the
 * positions where token t occurs.
 *
 * Five kernels list the positions of every token; then blocks sum pieces of those lists, because
 * frequent tokens (every twentieth in text) would keep a single block busy for long. Lists are
 * allocated with atomics, so where a list is stored differs from run to run. But inside a list the
 * positions are sorted, and pieces count from its start: the sums, and their bits, are the same
 * every time. */
#include "backend/cuda/k_embed.h"
#include "backend/cuda/vector.cuh"
#include "backend/kernel_params.h"

constexpr int THREADS = 256;     // per block of the kernels that list positions
constexpr int SUM_THREADS = 128; // per block of those that add rows
constexpr int PIECE = STRAIT_TOKEN_PIECE;
constexpr int ORDER_LANES = STRAIT_CUDA_ORDER_LANES;

using positions = strait_cuda_positions;

#define BY_POSITION(name)                             \
    extern "C" __global__ void __launch_bounds__(256) \
        name(positions at, const int32_t *tokens, int64_t rows)

__device__ __forceinline__ int64_t my_position() {
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* Clears the counters of tokens that occur in this batch, and only those. */
BY_POSITION(embed_clear) {
    const int64_t n = my_position();
    if (n == 0) *at.used = {};
    if (n < rows) at.count[tokens[n]] = 0;
}

/* Counts occurrences; rank tells which of its token's occurrences a position was counted as. */
BY_POSITION(embed_count) {
    const int64_t n = my_position();
    if (n < rows) at.rank[n] = atomicAdd(at.count + tokens[n], 1);
}

/* Adds up `want` over the lanes of a whole warp, with one atomic instead of 32, which would wait
 * for each other; returns where the share of this lane begins. */
__device__ __forceinline__ int32_t take_share(int32_t *used, int32_t want) {
    const int lane = (int)threadIdx.x % 32;
    int32_t sum = want, begin = 0;
    for (int offset = 1; offset < 32; offset *= 2) {
        const int32_t before = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += before;
    }
    if (lane == 31) begin = atomicAdd(used, sum);
    return __shfl_sync(0xffffffffu, begin, 31) + sum - want;
}

/* The thread whose position was counted first allocates the token's list and its pieces. */
BY_POSITION(embed_allocate) {
    const int64_t n = my_position();
    const bool is_first = n < rows && at.rank[n] == 0;
    const int32_t token = is_first ? tokens[n] : 0, count = is_first ? at.count[token] : 0;
    const int32_t pieces = (count + PIECE - 1) / PIECE;
    const int32_t first = take_share(&at.used->positions, count);
    const int32_t piece = take_share(&at.used->pieces, pieces);
    if (!is_first) return;
    at.first[token] = first;
    if (pieces == 1) {
        at.pieces[piece] = {token, first, count, -1};
        return;
    }
    const int32_t partial = atomicAdd(&at.used->partials, pieces);
    at.commons[atomicAdd(&at.used->commons, 1)] = {token, partial, pieces};
    for (int32_t i = 0; i < pieces; i++)
        at.pieces[piece + i] = {token, first + i * PIECE, min(PIECE, count - i * PIECE),
                                partial + i};
}

/* Writes positions into their lists, in the order in which they were counted. */
BY_POSITION(embed_list) {
    const int64_t n = my_position();
    if (n < rows) at.found[at.first[tokens[n]] + at.rank[n]] = (int32_t)n;
}

/* Sorts every list by rank: a few lanes per entry count the smaller positions in its list.
 * Neighbouring entries have the same token and so read the same memory. */
BY_POSITION(embed_sort) {
    const int64_t i = my_position() / ORDER_LANES;
    const int lane = (int)threadIdx.x % ORDER_LANES;
    const bool is_valid = i < rows;
    const int32_t position = is_valid ? at.found[i] : 0, token = tokens[position];
    const int32_t count = is_valid ? at.count[token] : 0, first = at.first[token];
    int32_t before = 0;
#pragma unroll 8
    for (int32_t j = lane; j < count; j += ORDER_LANES)
        before += at.found[first + j] < position;
    for (int offset = ORDER_LANES / 2; offset > 0; offset /= 2)
        before += __shfl_xor_sync(0xffffffffu, before, offset);
    if (is_valid && lane == 0) at.list[first + before] = position;
}

/* Adds `count` rows to `to`, W columns per thread; row(i) points to the i-th. With is_new the old
 * `to` is not read. */
template <typename T, int W, typename F>
__device__ __forceinline__ void add_rows(float *to, int32_t count, int64_t cols, bool is_new,
                                         F row) {
    const int64_t step = (int64_t)gridDim.y * SUM_THREADS * W;
    for (int64_t c = ((int64_t)blockIdx.y * SUM_THREADS + threadIdx.x) * W; c < cols; c += step) {
        float sum[W] = {};
        if (!is_new) take_floats<W>(sum, to + c);
#pragma unroll 8
        for (int32_t i = 0; i < count; i++) {
            float more[W];
            take<T, W>(more, row(i) + c);
#pragma unroll
            for (int w = 0; w < W; w++)
                sum[w] += more[w];
        }
        put_floats<W>(to + c, sum);
    }
}

/* Rows of d_y are d_cols apart: they may be wider than those of the table. */
template <typename T>
__device__ __forceinline__ void embed_back(float *d_table, const T *d_y, const positions &at,
                                           int64_t cols, int64_t d_cols) {
    __shared__ int32_t list[PIECE];
    if ((int32_t)blockIdx.x >= at.used->pieces) return;
    const strait_cuda_piece piece = at.pieces[blockIdx.x];
    for (int32_t i = (int32_t)threadIdx.x; i < piece.count; i += SUM_THREADS)
        list[i] = at.list[piece.first + i];
    __syncthreads();
    const bool is_part = piece.partial >= 0;
    float *to = is_part ? at.partials + piece.partial * cols : d_table + piece.token * cols;
    const auto row = [=](int32_t i) { return d_y + list[i] * d_cols; };
    if ((cols | d_cols) % wide<T> == 0 && at16(d_table, d_y))
        add_rows<T, wide<T>>(to, piece.count, cols, is_part, row);
    else
        add_rows<T, 1>(to, piece.count, cols, is_part, row);
}

#define EMBED_BACK(T, suffix)                                                       \
    extern "C" __global__ void __launch_bounds__(SUM_THREADS) embed_back_##suffix(  \
        float *d_table, const T *d_y, positions at, int64_t cols, int64_t d_cols) { \
        embed_back<T>(d_table, d_y, at, cols, d_cols);                              \
    }

EMBED_BACK(float, f32)
EMBED_BACK(bf16, bf16)

/* Adds the partial sums of tokens with several pieces to their rows, in order. */
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    embed_join(float *d_table, positions at, int64_t cols) {
    if ((int32_t)blockIdx.x >= at.used->commons) return;
    const strait_cuda_common common = at.commons[blockIdx.x];
    const float *first = at.partials + common.first * cols;
    float *to = d_table + common.token * cols;
    const auto row = [=](int32_t i) { return first + i * cols; };
    if (cols % wide<float> == 0 && at16(d_table))
        add_rows<float, wide<float>>(to, common.count, cols, false, row);
    else
        add_rows<float, 1>(to, common.count, cols, false, row);
}
