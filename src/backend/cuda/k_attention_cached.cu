/* k_attention_cached.cu - attention of single tokens to the cached keys and values of their
 * sequences.
 *
 * One kernel stores the keys and values of all rows, another attends: a block is one head of one
 * row. Its warps take groups of positions in turn, each with an online softmax of its own; one
 * thread per column then merges the warps in order. Which warp takes a position depends on the
 * position alone, so a row has the same bits whatever the other rows are. */
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_value.cuh"

namespace {

constexpr int WARPS = STRAIT_ATTENTION_CACHED_WARPS;
constexpr int GROUP = 4; // positions that a warp loads at once, to hide the latency of memory

/* A running softmax: weighted mean and sum, both relative to exp(max). PARTS: columns per lane. */
template <int PARTS> struct running { float mean[PARTS], max, sum; };

template <typename T, int PARTS>
__device__ void take_columns(float out[PARTS], const T *from, int dim) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        out[i] = i * 32 + lane < dim ? value_at(from + i * 32 + lane) : 0.0f;
}

/* Positions [first, first + n) of at most GROUP; those past n count as -inf. */
template <typename T, int PARTS>
__device__ void attend(running<PARTS> &r, const float query[PARTS], const T *keys, const T *values,
                       int64_t width, int n, const struct strait_attention_cached_args &a) {
    float key[GROUP][PARTS], value[GROUP][PARTS], score[GROUP], top = r.max;
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        const int64_t at = (j < n ? j : 0) * width;
        take_columns<T, PARTS>(key[j], keys + at, a.head_dim);
        take_columns<T, PARTS>(value[j], values + at, a.head_dim);
    }
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            sum = fmaf(query[i], key[j][i], sum);
        score[j] = j < n ? warp_sum(sum) * a.scale : -INFINITY;
        top = fmaxf(top, score[j]);
    }
    const float shrink = expf(r.max - top);
    r.max = top;
    r.sum *= shrink;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        r.mean[i] *= shrink;
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        const float share = expf(score[j] - top);
        r.sum += share;
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            r.mean[i] = fmaf(share, value[j][i], r.mean[i]);
    }
}

/* Merges the softmaxes of all warps into y. A warp without positions has maximum -inf and weight 0.
 */
template <typename T, int PARTS>
__device__ void join(T *y, const running<PARTS> &r, const struct strait_attention_cached_args &a) {
    __shared__ float maxima[WARPS], sums[WARPS], means[WARPS * 32 * PARTS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        means[(warp * PARTS + i) * 32 + lane] = r.mean[i];
    if (lane == 0) {
        maxima[warp] = r.max;
        sums[warp] = r.sum;
    }
    __syncthreads();
    float top = -INFINITY;
    for (int w = 0; w < WARPS; w++)
        top = fmaxf(top, maxima[w]);
    for (int c = (int)threadIdx.x; c < a.head_dim; c += 32 * WARPS) {
        float mean = 0, sum = 0;
        for (int w = 0; w < WARPS; w++) {
            const float weight = expf(maxima[w] - top);
            mean = fmaf(weight, means[w * PARTS * 32 + c], mean);
            sum = fmaf(weight, sums[w], sum);
        }
        put_value(y + c, mean / sum);
    }
}

template <typename T, int PARTS>
__device__ void attend_row(const struct strait_attention_cached_args &a, int sequence,
                           int n_positions) {
    const int head = (int)blockIdx.x, group = a.n_query / a.n_key, dim = a.head_dim;
    const int warp = (int)threadIdx.x / 32;
    const int64_t width = (int64_t)a.n_key * dim, row = blockIdx.y;
    const int64_t first = (int64_t)sequence * a.seq_len * width + (int64_t)(head / group) * dim;
    const T *keys = (const T *)a.keys + first, *values = (const T *)a.values + first;
    float query[PARTS];
    take_columns<T, PARTS>(
        query, (const T *)a.qkv + row * (a.n_query * dim + 2 * width) + head * dim, dim);
    running<PARTS> r = {{0}, -INFINITY, 0};
    for (int j = warp * GROUP; j < n_positions; j += WARPS * GROUP)
        attend<T, PARTS>(r, query, keys + j * width, values + j * width, width,
                         n_positions - j < GROUP ? n_positions - j : GROUP, a);
    join<T, PARTS>((T *)a.y + (row * a.n_query + head) * dim, r, a);
}

/* Blocks: x = head, y = row. */
template <typename T> __device__ void cached(const struct strait_attention_cached_args &a) {
    const int sequence = a.sequences[blockIdx.y], n = a.positions[blockIdx.y] + 1;
    if (sequence < 0) return;
    if (a.head_dim <= 32)
        attend_row<T, 1>(a, sequence, n);
    else if (a.head_dim <= 64)
        attend_row<T, 2>(a, sequence, n);
    else if (a.head_dim <= 128)
        attend_row<T, 4>(a, sequence, n);
    else
        attend_row<T, 8>(a, sequence, n);
}

/* A block is one row: copies its key and value to the cache. */
template <typename T> __device__ void store(const struct strait_attention_cached_args &a) {
    const int sequence = a.sequences[blockIdx.x], position = a.positions[blockIdx.x];
    const int64_t width = (int64_t)a.n_key * a.head_dim, skipped = (int64_t)a.n_query * a.head_dim;
    const T *from = (const T *)a.qkv + blockIdx.x * (skipped + 2 * width) + skipped;
    const int64_t to = ((int64_t)sequence * a.seq_len + position) * width;
    if (sequence < 0) return;
    for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        ((T *)a.keys)[to + c] = from[c];
        ((T *)a.values)[to + c] = from[width + c];
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_cached_f32(const __grid_constant__ struct strait_attention_cached_args a) {
    cached<float>(a);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attention_cached_bf16(const __grid_constant__ struct strait_attention_cached_args a) {
    cached<bf16>(a);
}

extern "C" __global__ void attention_store_f32(
    const __grid_constant__ struct strait_attention_cached_args a) {
    store<float>(a);
}

extern "C" __global__ void attention_store_bf16(
    const __grid_constant__ struct strait_attention_cached_args a) {
    store<bf16>(a);
}
