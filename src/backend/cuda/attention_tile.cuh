/* attention_tile.cuh - tiles of bf16 rows and their products on tensor cores.
 *
 * A tile is rows of P values in shared memory. The 16-byte pieces of a row are permuted by the row
 * number (swizzled), so that eight rows of one column are in different banks.
 *
 * An accumulator of 16 x 8 values is float[4] per lane: lane l holds columns 2 (l % 4) and the
 * next, of row l / 4 (values 0, 1) and of row l / 4 + 8 (values 2, 3). */
#pragma once

#include "backend/cuda/attention_ptx.cuh"
#include "backend/cuda/vector.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

__device__ __forceinline__ int lane_of() {
    return (int)(threadIdx.x % 32);
}

template <int P> __host__ __device__ constexpr uint32_t tile_bytes(int rows) {
    return (uint32_t)(rows * P * 2);
}

/* The offset of piece 0 or 1 of a lane's own row. Piece + 2 k is at the result ^ (k << 5), because
 * tiles and rows start at multiples of their size. */
template <int P> __device__ __forceinline__ uint32_t piece_at(int row, int piece) {
    return (uint32_t)(row * P * 2 + ((piece ^ (row & 7)) << 4));
}

/* Starts to copy ROWS rows, `pitch` values apart; rows from n_valid on become zeros. */
template <int P, int ROWS, int BLOCK = THREADS>
__device__ __forceinline__ void fetch_rows(uint32_t to, const uint16_t *from, int64_t pitch,
                                           int n_valid) {
    constexpr int PIECES = P / 8, STRIDE = BLOCK / PIECES; // rows the threads copy at once
    static_assert(STRIDE % 8 == 0, "a thread's pieces have the same offset in their rows");
    const int row = (int)threadIdx.x / PIECES, piece = (int)threadIdx.x % PIECES;
    to += piece_at<P>(row, piece);
    from += row * pitch + piece * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += STRIDE) {
        if (i + STRIDE <= ROWS || row + i < ROWS)
            copy16(to + tile_bytes<P>(i), from, row + i < n_valid);
        from += STRIDE * pitch;
    }
}

/* Starts to copy one float per row; a block has at least as many threads. */
template <int ROWS>
__device__ __forceinline__ void fetch_column(uint32_t to, const float *from, int64_t pitch,
                                             int n_valid) {
    const int row = (int)threadIdx.x;
    if (row >= ROWS) return;
    const bool is_valid = row < n_valid;
    copy4(to + (uint32_t)row * 4, from + (is_valid ? row * pitch : 0), is_valid);
}

/* The left factor of a product with rows of a tile: 16 MT rows of P values that one warp owns, read
 * from shared memory at every use or kept in registers. */
template <int P, int MT, bool IS_HELD> struct own_rows {
    uint32_t at; // this lane's piece of the first 16 rows
    uint32_t held[IS_HELD ? MT * P / 16 : 1][4];

    __device__ __forceinline__ void load(uint32_t out[4], int m, int k) const {
        load_matrices(out, (at ^ (uint32_t)(k << 5)) + tile_bytes<P>(16 * m));
    }
    __device__ __forceinline__ void init(uint32_t tile, int first_row) {
        at = tile + piece_at<P>(first_row + lane_of() % 16, lane_of() / 16);
    }
    __device__ __forceinline__ void hold() {
        if constexpr (IS_HELD) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int k = 0; k < P / 16; k++)
                    load(held[m * (P / 16) + k], m, k);
        }
    }
    __device__ __forceinline__ void get(uint32_t out[4], int m, int k) const {
        if constexpr (IS_HELD) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[i] = held[m * (P / 16) + k][i];
        } else {
            load(out, m, k);
        }
    }
};

template <int MT, int NT> __device__ __forceinline__ void clear(float acc[MT][NT][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[m][n][i] = 0;
}

/* acc = own B^T, where B is 8 NT rows of the tile from `first` on. */
template <int P, int MT, int NT, bool IS_HELD>
__device__ __forceinline__ void product_with_rows(float acc[MT][NT][4],
                                                  const own_rows<P, MT, IS_HELD> &own,
                                                  uint32_t tile, int first) {
    const uint32_t at = tile +
                        piece_at<P>(first + lane_of() / 16 * 8 + lane_of() % 8, lane_of() / 8 % 2);
    clear<MT, NT>(acc);
#pragma unroll
    for (int k = 0; k < P / 16; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            own.get(a[m], m, k);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            load_matrices(b, (at ^ (uint32_t)(k << 5)) + tile_bytes<P>(8 * n));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(acc[m][n], a[m], b[0], b[1]);
                multiply(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* sum += shares B, where B is 8 NT rows of the tile from `first` on; shares are rounded to bf16. */
template <int P, int MT, int NT>
__device__ __forceinline__ void add_product(float sum[MT][P / 8][4], const float shares[MT][NT][4],
                                            uint32_t tile, int first) {
    const uint32_t at = tile + piece_at<P>(first + lane_of() % 16, lane_of() / 16);
#pragma unroll
    for (int k = 0; k < NT / 2; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = &shares[m][2 * k + i / 2][i % 2 * 2];
                a[m][i] = bf16_pair(pair[0], pair[1]);
            }
#pragma unroll
        for (int n = 0; n < P / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, (at ^ (uint32_t)(n << 4)) + tile_bytes<P>(16 * k));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(sum[m][n], a[m], b[0], b[1]);
                multiply(sum[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Masks the scores of keys later than their query; row and column are this lane's first. Rows are
 * queries and columns keys, or (KEY_ROWS) the other way round. */
template <int MT, int NT, bool KEY_ROWS>
__device__ __forceinline__ void mask(float score[MT][NT][4], int row, int column) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + 16 * m + i / 2 * 8, c = column + 8 * n + i % 2;
                if (KEY_ROWS ? r > c : c > r) score[m][n][i] = -INFINITY;
            }
}

/* Writes one row of an accumulator times `scale`; half 0 is row lane / 4, half 1 is eight later. */
template <int P>
__device__ __forceinline__ void write_row(uint16_t *row, const float acc[P / 8][4], int half,
                                          float scale) {
    uint32_t *to = (uint32_t *)row + lane_of() % 4;
#pragma unroll
    for (int n = 0; n < P / 8; n++)
        to[4 * n] = bf16_pair(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale);
}

/* Rotates values of bf16 back and rounds them again. */
__device__ __forceinline__ void rotate_back_pairs(uint32_t &low, uint32_t &high, float2 cosine,
                                                  float2 sine) {
    float a = __uint_as_float(low << 16), b = __uint_as_float(high << 16);
    float c = __uint_as_float(low & 0xffff0000u), d = __uint_as_float(high & 0xffff0000u);
    rotate_pair(a, b, cosine.x, -sine.x);
    rotate_pair(c, d, cosine.y, -sine.y);
    low = bf16_pair(a, c);
    high = bf16_pair(b, d);
}

/* write_row, rotated back by the angles of a position. The values are rounded before and after, as
 * if the rotation were a kernel of its own. */
template <int P>
__device__ __forceinline__ void write_rotated_row(uint16_t *row, const float acc[P / 8][4],
                                                  int half, float scale, const float *cos,
                                                  const float *sin) {
    uint32_t *to = (uint32_t *)row + lane_of() % 4;
    const float2 *cosines = (const float2 *)cos + lane_of() % 4;
    const float2 *sines = (const float2 *)sin + lane_of() % 4;
#pragma unroll
    for (int n = 0; n < P / 16; n++) {
        const float *a = &acc[n][2 * half], *b = &acc[n + P / 16][2 * half];
        uint32_t low = bf16_pair(a[0] * scale, a[1] * scale);
        uint32_t high = bf16_pair(b[0] * scale, b[1] * scale);
        rotate_back_pairs(low, high, cosines[4 * n], sines[4 * n]);
        to[4 * n] = low;
        to[4 * (n + P / 16)] = high;
    }
}
