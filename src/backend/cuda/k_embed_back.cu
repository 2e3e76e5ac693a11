/* k_embed_back.cu - the gradient of a table of tokens: to each row, the rows where its token
 * stands.
 *
 * The places of every token are listed, and blocks add up pieces of the lists: text has tokens that
 * are every twentieth, and one block would be long at them. Lists lie in whatever order blocks ask
 * for room, but inside one the places are in order, and pieces are counted from its beginning: so
 * the sums are the same every time. */
#include "backend/cuda/k_embed.h"
#include "backend/cuda/vector.cuh"

constexpr int THREADS = 256;     // of the kernels that list places
constexpr int SUM_THREADS = 128; // of those that add rows
constexpr int PIECE = STRAIT_CUDA_PIECE;
constexpr int ORDER_LANES = STRAIT_CUDA_ORDER_LANES;

using places = strait_cuda_places;

#define BY_PLACE(name)                                \
    extern "C" __global__ void __launch_bounds__(256) \
        name(places at, const int32_t *tokens, int64_t rows)

__device__ __forceinline__ int64_t my_place() {
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

BY_PLACE(embed_forget) {
    const int64_t n = my_place();
    if (n == 0) *at.given = {};
    if (n < rows) at.count[tokens[n]] = 0;
}

BY_PLACE(embed_count) {
    const int64_t n = my_place();
    if (n < rows) at.turn[n] = atomicAdd(at.count + tokens[n], 1);
}

/* Whoever was counted first of its token asks for room, and makes the pieces. */
BY_PLACE(embed_allot) {
    const int64_t n = my_place();
    if (n >= rows || at.turn[n] != 0) return;
    const int32_t token = tokens[n], count = at.count[token];
    const int32_t pieces = (count + PIECE - 1) / PIECE;
    const int32_t first = atomicAdd(&at.given->places, count);
    const int32_t piece = atomicAdd(&at.given->pieces, pieces);
    at.first[token] = first;
    if (pieces == 1) {
        at.pieces[piece] = {token, first, count, -1};
        return;
    }
    const int32_t partial = atomicAdd(&at.given->partials, pieces);
    at.commons[atomicAdd(&at.given->commons, 1)] = {token, partial, pieces};
    for (int32_t i = 0; i < pieces; i++)
        at.pieces[piece + i] = {token, first + i * PIECE, min(PIECE, count - i * PIECE),
                                partial + i};
}

BY_PLACE(embed_list) {
    const int64_t n = my_place();
    if (n < rows) at.found[at.first[tokens[n]] + at.turn[n]] = (int32_t)n;
}

/* A few lanes an entry: they count what stands before it in its token's list. Neighbours have the
 * same token, and read the same. */
BY_PLACE(embed_order) {
    const int64_t i = my_place() / ORDER_LANES;
    const int lane = (int)threadIdx.x % ORDER_LANES;
    const bool is_there = i < rows;
    const int32_t place = is_there ? at.found[i] : 0, token = tokens[place];
    const int32_t count = is_there ? at.count[token] : 0, first = at.first[token];
    int32_t before = 0;
#pragma unroll 8
    for (int32_t j = lane; j < count; j += ORDER_LANES)
        before += at.found[first + j] < place;
    for (int by = ORDER_LANES / 2; by > 0; by /= 2)
        before += __shfl_xor_sync(0xffffffffu, before, by);
    if (is_there && lane == 0) at.list[first + before] = place;
}

/* W columns of to, plus those of `count` rows; row(i) is where the i-th one begins. */
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

template <typename T>
__device__ __forceinline__ void embed_back(float *d_table, const T *d_y, const places &at,
                                           int64_t cols) {
    __shared__ int32_t list[PIECE];
    if ((int32_t)blockIdx.x >= at.given->pieces) return;
    const strait_cuda_piece piece = at.pieces[blockIdx.x];
    for (int32_t i = (int32_t)threadIdx.x; i < piece.count; i += SUM_THREADS)
        list[i] = at.list[piece.first + i];
    __syncthreads();
    const bool is_part = piece.partial >= 0;
    float *to = is_part ? at.partials + piece.partial * cols : d_table + piece.token * cols;
    const auto row = [=](int32_t i) { return d_y + list[i] * cols; };
    if (cols % wide<T> == 0 && at16(d_table, d_y))
        add_rows<T, wide<T>>(to, piece.count, cols, is_part, row);
    else
        add_rows<T, 1>(to, piece.count, cols, is_part, row);
}

#define EMBED_BACK(T, suffix)                                                        \
    extern "C" __global__ void __launch_bounds__(SUM_THREADS)                        \
        embed_back_##suffix(float *d_table, const T *d_y, places at, int64_t cols) { \
        embed_back<T>(d_table, d_y, at, cols);                                       \
    }

EMBED_BACK(float, f32)
EMBED_BACK(bf16, bf16)

/* To the rows of tokens of several pieces, their partial sums. */
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
    embed_join(float *d_table, places at, int64_t cols) {
    if ((int32_t)blockIdx.x >= at.given->commons) return;
    const strait_cuda_common common = at.commons[blockIdx.x];
    const float *first = at.partials + common.first * cols;
    float *to = d_table + common.token * cols;
    const auto row = [=](int32_t i) { return first + i * cols; };
    if (cols % wide<float> == 0 && at16(d_table))
        add_rows<float, wide<float>>(to, common.count, cols, false, row);
    else
        add_rows<float, 1>(to, common.count, cols, false, row);
}
