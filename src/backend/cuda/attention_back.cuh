/* attention_back.cuh - what the backward passes of attention on tensor cores share. */
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tile.cuh"

constexpr int MET = 64; // rows per tile of the other side

/* Pointers to one head in the first row of one sequence. */
struct head_rows {
    const uint16_t *q, *k, *v, *d_y;
    int64_t first_row, pitch, y_pitch;
};

template <int P>
__device__ __forceinline__ struct head_rows head_rows_of(const struct strait_attention_args &a,
                                                         int head, int key_head, int sequence) {
    struct head_rows p;
    p.first_row = (int64_t)sequence * a.seq_len;
    p.pitch = (int64_t)(a.n_query + 2 * a.n_key) * P;
    p.y_pitch = (int64_t)a.n_query * P;
    const uint16_t *row = (const uint16_t *)a.qkv + p.first_row * p.pitch;
    p.q = row + (int64_t)head * P;
    p.k = row + (int64_t)(a.n_query + key_head) * P;
    p.v = p.k + (int64_t)a.n_key * P;
    p.d_y = (const uint16_t *)a.d_y + p.first_row * p.y_pitch + (int64_t)head * P;
    return p;
}

/* lse (times log2 e, for power_of_2) and delta of a lane's rows of queries. */
template <int MT> struct query_columns {
    float lse[MT][2], delta[MT][2];

    __device__ __forceinline__ void read(const struct strait_attention_args &a,
                                         const struct head_rows &p, int head, int row) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t at = p.first_row + min(row + 16 * m + 8 * half, a.seq_len - 1);
                lse[m][half] = a.lse[at * a.n_query + head] * LOG2_E;
                delta[m][half] = a.delta[at * a.n_query + head];
            }
    }
};

/* Replaces scores by probabilities ("shares") and d_share by the gradient of scores without its
 * scale: share (d_share - delta). Rows are queries. */
template <int MT, int NT>
__device__ __forceinline__ void differentiate(float score[MT][NT][4], float d_share[MT][NT][4],
                                              const query_columns<MT> &of, float scale) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                score[m][n][i] = power_of_2(score[m][n][i] * scale - of.lse[m][i / 2]);
                d_share[m][n][i] = score[m][n][i] * (d_share[m][n][i] - of.delta[m][i / 2]);
            }
}

/* Which head of which sequence a block belongs to (its number among all), and its turn there. */
struct block_place {
    int pair, turn;
};

/* Blocks start in the order of their numbers. They go section by section: blocks that run at the
 * same time then read the same few heads, which stay in the L2 cache. Within a section the first
 * turns of all heads come first, since they take longest. */
__device__ __forceinline__ struct block_place place_of(const struct strait_attention_args &a) {
    const unsigned at = blockIdx.y * gridDim.x + blockIdx.x, section = (unsigned)a.section;
    const unsigned first = at / (section * gridDim.y) * section,
                   n = min(section, gridDim.x - first);
    const unsigned rest = at - first * gridDim.y;
    return {(int)(first + rest % n), (int)(rest / n)};
}

/* A tile of queries among those that a block of keys processes. */
struct query_cursor {
    int i;              // counts all of them
    int in_group, tile; // query head of the group; tile of that head
};

/* The tiles of queries that a block of keys processes: tile by tile for each query head of its
 * group. A stage holds a tile of queries, one of d_y, and lse and delta. */
template <int P> struct met_queries {
    uint32_t stages;
    int first_tile; // earlier queries see none of the keys
    int n_tiles;    // per head

    static constexpr uint32_t TILE = tile_bytes<P>(MET);
    static constexpr uint32_t STAGE = 2 * TILE + STRAIT_ATTENTION_COLUMNS;

    __device__ __forceinline__ void init(uint32_t at, int first_key, int seq_len) {
        stages = at;
        first_tile = first_key / MET;
        n_tiles = (seq_len + MET - 1) / MET - first_tile;
    }
    /* Counting replaces divisions, which took a tenth of the instructions. */
    __device__ __forceinline__ void advance(query_cursor &at) const {
        at.i++;
        if (++at.tile < n_tiles) return;
        at.tile = 0;
        at.in_group++;
    }
    __device__ __forceinline__ int first_query(const query_cursor &at) const {
        return (first_tile + at.tile) * MET;
    }
    __device__ __forceinline__ uint32_t stage(const query_cursor &at) const {
        return stages + (uint32_t)(at.i & 1) * STAGE;
    }
    /* Starts to fetch lse and delta of a tile. */
    __device__ __forceinline__ void fetch_columns(const struct strait_attention_args &a,
                                                  const struct head_rows &p, int head,
                                                  const query_cursor &to) const {
        const int first = first_query(to), n_valid = a.seq_len - first;
        const int64_t at = (p.first_row + first) * a.n_query + head;
        fetch_column<MET>(stage(to) + 2 * TILE, a.lse + at, a.n_query, n_valid);
        fetch_column<MET>(stage(to) + 2 * TILE + MET * 4, a.delta + at, a.n_query, n_valid);
    }
};

/* Writes the gradient of one query or key, of the token at `position`, rotated back if asked. */
template <int P>
__device__ __forceinline__ void write_gradient(const struct strait_attention_args &a, uint16_t *to,
                                               int64_t position, const float d[P / 8][4],
                                               int half) {
    if (a.cos == NULL)
        write_row<P>(to, d, half, a.scale);
    else
        write_rotated_row<P>(to, d, half, a.scale, a.cos + position * (P / 2),
                             a.sin + position * (P / 2));
}

/* Writes the gradient of one key and its value, unless the row is beyond the sequence. */
template <int P>
__device__ __forceinline__ void write_keys(const struct strait_attention_args &a,
                                           const struct head_rows &p, int key_head, int row,
                                           const float d_k[P / 8][4], const float d_v[P / 8][4],
                                           int half) {
    if (row >= a.seq_len) return;
    uint16_t *to = (uint16_t *)a.d_qkv + (p.first_row + row) * p.pitch +
                   (int64_t)(a.n_query + key_head) * P;
    write_gradient<P>(a, to, row, d_k, half);
    write_row<P>(to + (int64_t)a.n_key * P, d_v, half, 1);
}

/* Writes the gradient of a lane's rows of queries, except those beyond the sequence. */
template <int P, int MT>
__device__ __forceinline__ void write_queries(const struct strait_attention_args &a,
                                              const struct head_rows &p, int head, int row,
                                              const float d_q[MT][P / 8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t at = row + 16 * m + 8 * half;
            if (at >= a.seq_len) continue;
            write_gradient<P>(
                a, (uint16_t *)a.d_qkv + (p.first_row + at) * p.pitch + (int64_t)head * P, at,
                d_q[m], half);
        }
}
