/* k_attention_cached.cu - attention of one new token per sequence to the cached keys and values.
 *
 * A block is one head of one sequence. Its warps take positions in turn, each with an online
 * softmax of its own; one thread per column then merges the warps in order. */
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_value.cuh"

namespace {

constexpr int WARPS = STRAIT_ATTENTION_CACHED_WARPS;
constexpr int PARTS = STRAIT_ATTENTION_HEAD_MAX / 32; // columns per lane

/* A running softmax: weighted mean and sum, both relative to exp(max). */
struct running {
    float mean[PARTS], max, sum;
};

template <typename T>
__device__ void attend(struct running &r, const float query[PARTS], const T *key, const T *val,
                       const struct strait_attention_cached_args &a) {
    const int lane = (int)threadIdx.x % 32;
    float score = 0;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (i * 32 + lane < a.head_dim)
            score = fmaf(query[i], value_at(key + i * 32 + lane), score);
    score = warp_sum(score) * a.scale;
    const float top = fmaxf(r.max, score), shrink = expf(r.max - top), share = expf(score - top);
    r.max = top;
    r.sum = r.sum * shrink + share;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (i * 32 + lane < a.head_dim)
            r.mean[i] = fmaf(share, value_at(val + i * 32 + lane), r.mean[i] * shrink);
}

/* Merges the softmaxes of all warps into y. A warp without positions has maximum -inf and weight 0.
 */
template <typename T>
__device__ void join(T *y, const struct running &r, const struct strait_attention_cached_args &a) {
    __shared__ float maxima[WARPS], sums[WARPS], means[WARPS * STRAIT_ATTENTION_HEAD_MAX];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (i * 32 + lane < a.head_dim)
            means[warp * STRAIT_ATTENTION_HEAD_MAX + i * 32 + lane] = r.mean[i];
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
            mean = fmaf(weight, means[w * STRAIT_ATTENTION_HEAD_MAX + c], mean);
            sum = fmaf(weight, sums[w], sum);
        }
        put_value(y + c, mean / sum);
    }
}

/* Blocks: x = head, y = sequence. The new key and value are read from qkv, because another block
 * may be the one that stores them in the cache. */
template <typename T> __device__ void cached(const struct strait_attention_cached_args &a) {
    const int head = (int)blockIdx.x, group = a.n_query / a.n_key, dim = a.head_dim;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t sequence = blockIdx.y, width = (int64_t)a.n_key * dim;
    const int64_t column = (int64_t)(head / group) * dim;
    const T *row = (const T *)a.qkv + sequence * (a.n_query * dim + 2 * width);
    const T *new_key = row + a.n_query * dim + column, *new_value = new_key + width;
    T *keys = (T *)a.keys + sequence * a.seq_len * width + column;
    T *values = (T *)a.values + sequence * a.seq_len * width + column;
    float query[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        query[i] = i * 32 + lane < dim ? value_at(row + head * dim + i * 32 + lane) : 0;
    struct running r = {{0}, -INFINITY, 0};
    for (int64_t j = warp; j < a.past; j += WARPS)
        attend(r, query, keys + j * width, values + j * width, a);
    if (warp == a.past % WARPS) attend(r, query, new_key, new_value, a);
    join((T *)a.y + (sequence * a.n_query + head) * dim, r, a);
    if (head % group != 0) return;
    for (int c = (int)threadIdx.x; c < dim; c += 32 * WARPS) {
        keys[a.past * width + c] = new_key[c];
        values[a.past * width + c] = new_value[c];
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
