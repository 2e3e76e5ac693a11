/* k_attention.cu - causal attention of bf16 heads of 64 and 128 on tensor cores.
 *
 * A block owns a tile of queries of one head and meets the keys in tiles, from the first to the
 * one on the diagonal; the next tile travels while one is worked on. Softmax is kept up to date
 * row by row: the largest score so far, the sum, and the mean scaled to that largest score. */
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tile.cuh"

namespace {

constexpr int KEYS = 64; // of a tile

/* What a lane knows of its two rows of each 16: MT x 2 rows. */
template <int P, int MT> struct running {
    float mean[MT][P / 8][4];
    float max[MT][2], sum[MT][2]; // max of unscaled scores; sum over this lane's columns only
};

template <int P, int MT> __device__ __forceinline__ void start(running<P, MT> &r) {
    clear<MT, P / 8>(r.mean);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.max[m][half] = -INFINITY;
            r.sum[m][half] = 0;
        }
}

/* Scores of keys behind their query; row and key are this lane's first of each. */
template <int MT, int NT>
__device__ __forceinline__ void mask(float score[MT][NT][4], int row, int key) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key + 8 * n + i % 2 > row + 16 * m + i / 2 * 8) score[m][n][i] = -INFINITY;
}

/* One row of scores becomes shares relative to the row's new maximum; the four lanes that hold the
 * row agree on it. */
template <int P, int NT>
__device__ __forceinline__ void soften_row(float score[NT][4], float mean[P / 8][4], float &max,
                                           float &sum, int half, float scale) {
    float top = max;
#pragma unroll
    for (int n = 0; n < NT; n++)
        top = fmaxf(top, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float shrink = power_of_2((max - top) * scale), offset = top * scale;
    max = top;
    sum *= shrink;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            score[n][i] = power_of_2(score[n][i] * scale - offset);
            sum += score[n][i];
        }
#pragma unroll
    for (int n = 0; n < P / 8; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++)
            mean[n][i] *= shrink;
}

template <int P, int MT>
__device__ __forceinline__ void finish(const struct strait_attention_args &a, running<P, MT> &r,
                                       int64_t first_row, int head, int row) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = r.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int at = row + 16 * m + 8 * half;
            if (at >= a.seq_len) continue;
            const int64_t index = (first_row + at) * a.n_query + head;
            write_row<P>((uint16_t *)a.y + index * P, r.mean[m], half, 1 / sum);
            if (a.lse != NULL && lane_of() % 4 == 0)
                a.lse[index] = r.max[m][half] * a.scale + logf(sum);
        }
}

/* Blocks: x = head + n_query * sequence, y = tile of queries, the longest rows first. */
template <int P, int MT, bool IS_HELD, int STEP>
__device__ __forceinline__ void forward(const struct strait_attention_args &a) {
    constexpr int ROWS = 16 * MT * WARPS,
                  NT = STEP / 8; // STEP keys at a time: their scores are in registers
    const int head = (int)(blockIdx.x % (unsigned)a.n_query);
    const int first_query = ((int)gridDim.y - 1 - (int)blockIdx.y) * ROWS;
    const int64_t first_row = (int64_t)(blockIdx.x / (unsigned)a.n_query) * a.seq_len;
    const int64_t pitch = (int64_t)(a.n_query + 2 * a.n_key) * P;
    const uint16_t *sequence = (const uint16_t *)a.qkv + first_row * pitch;
    const uint16_t *keys = sequence + (a.n_query + head / (a.n_query / a.n_key)) * P;
    const int to_values = a.n_key * P;
    const uint32_t queries = shared_base(), stages = queries + tile_bytes<P>(ROWS);
    const int warp_row = (int)threadIdx.x / 32 * 16 * MT;
    const int row = first_query + warp_row + lane_of() / 4;

    fetch_rows<P, ROWS>(queries, sequence + first_query * pitch + (int64_t)head * P, pitch,
                        a.seq_len - first_query);
    fetch_rows<P, KEYS>(stages, keys, pitch, a.seq_len);
    fetch_rows<P, KEYS>(stages + tile_bytes<P>(KEYS), keys + to_values, pitch, a.seq_len);

    running<P, MT> r;
    start(r);
    own_rows<P, MT, IS_HELD> own;
    own.init(queries, warp_row);
    const int end = min(first_query + ROWS, a.seq_len);
    for (int first = 0, stage = 0; first < end; first += KEYS, stage ^= 1) {
        copy_wait();
        __syncthreads();
        if (first == 0) own.hold();
        if (first + KEYS < end) {
            const uint32_t next = stages + (uint32_t)(stage ^ 1) * 2 * tile_bytes<P>(KEYS);
            keys += KEYS * pitch;
            fetch_rows<P, KEYS>(next, keys, pitch, a.seq_len - first - KEYS);
            fetch_rows<P, KEYS>(next + tile_bytes<P>(KEYS), keys + to_values, pitch,
                                a.seq_len - first - KEYS);
        }
        const uint32_t key_tile = stages + (uint32_t)stage * 2 * tile_bytes<P>(KEYS);
#pragma unroll 1
        for (int step = 0; step < KEYS; step += STEP) {
            const int key = first + step;
            if (key > first_query + warp_row + 16 * MT - 1) break; // all behind the diagonal
            float score[MT][NT][4];
            product_with_rows<P, MT, NT, IS_HELD>(score, own, key_tile, step);
            if (key + STEP - 1 > first_query + warp_row)
                mask<MT, NT>(score, row, key + lane_of() % 4 * 2);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    soften_row<P, NT>(score[m], r.mean[m], r.max[m][half], r.sum[m][half], half,
                                      a.scale * LOG2_E);
            add_product<P, MT, NT>(r.mean, score, key_tile + tile_bytes<P>(KEYS), step);
        }
    }
    finish<P, MT>(a, r, first_row, head, row);
}

} // namespace

TILED_KERNEL(attention_tiled_64, forward<64, 2, true, 64>)
TILED_KERNEL(attention_tiled_128, forward<128, 2, false, 32>)
