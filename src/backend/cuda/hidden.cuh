/* hidden.cuh - what kernels of codes on tensor cores share. sm_80 and later.
 *
 * A block owns some rows. Factors lie in shared memory as tiles of 64 values a row
 * (attention_tile.cuh), one for each panel of 64 columns. Where nothing else is said, two halves of
 * the block's eight warps share out the rows, the four warps of a half the columns. What leaves
 * goes by way of shared memory, so that rows are written in pieces of 16 bytes. */
#pragma once

#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/k_hidden.h"
#include "backend/cuda/octave.cuh"
#include "backend/cuda/recall.cuh"

constexpr int BLOCK = STRAIT_CUDA_HIDDEN_THREADS;
constexpr int ROWS = STRAIT_CUDA_HIDDEN_ROWS;
constexpr int ALL_ROWS = ROWS + STRAIT_CUDA_HIDDEN_AFTER;
constexpr int MT = ROWS / 2 / 16; // sixteens of rows of a warp
constexpr int PANEL = STRAIT_CUDA_HIDDEN_PANEL;
constexpr int CHUNK = STRAIT_CUDA_HIDDEN_CHUNK;

typedef lanes<bf16, PIECE> piece;

__device__ __forceinline__ int first_row_of_warp() {
    return (int)threadIdx.x / 128 * (ROWS / 2);
}

/* Of a warp among those that share `cols` columns. */
__device__ __forceinline__ int first_col_of_warp(int cols) {
    return (int)threadIdx.x / 32 % 4 * (cols / 4);
}

/* Rounded sums of a warp, from this row and column on, `pitch` bytes from row to row. */
template <int MT, int NT>
__device__ __forceinline__ void put_sums(unsigned char *room, int pitch, const float acc[MT][NT][4],
                                         int row, int col) {
    row += lane_of() / 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(uint32_t *)(room + (row + 16 * m + 8 * half) * pitch +
                              (col + 8 * n + lane_of() % 4 * 2) *
                                  2) = bf16_pair(acc[m][n][2 * half], acc[m][n][2 * half + 1]);
}

/* Values c to c + 7 of a row of so many packed columns; zeros where there are none. Every lane of
 * the row calls; a row that is not its block's own leaves no trace in stats. */
__device__ __forceinline__ void restore_piece(float v[PIECE], float *stats, const void *packed,
                                              int keep, int is_stochastic, const row_place &at,
                                              bool is_own) {
    const unsigned char *bytes = (const unsigned char *)packed;
    const float top = __uint_as_float(take_bytes(bytes, 4)), trusted = strait_scale_trust(top);
    const int c = at.lane * PIECE;
    const bool is_there = at.row >= 0 && at.row < at.rows && c < keep;
    float size = 0, bad = 0;
    bytes += 4 + (is_there ? at.row : 0) * ((keep + 2) / 2);
    if (is_there)
        restore_eight(v, bytes, c, keep, scale_of(trusted, bytes[0] & 15, is_stochastic).unit);
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
        size += v[k] * v[k];
        if (top != trusted && c + k < keep) bad += 1.0f;
    }
    put_stats(stats, {at.row, is_own ? at.rows : 0, at.lane, at.n_lanes}, 0.0f, size, bad);
}

/* Starts to fetch N rows of v, of all panels. */
template <int PANELS, int N>
__device__ __forceinline__ void fetch_tile(uint32_t to, const void *v, int first) {
    constexpr int COLS = PANELS * PANEL;
#pragma unroll
    for (int p = 0; p < PANELS; p++)
        fetch_rows<PANEL, N, BLOCK>(to + (uint32_t)p * tile_bytes<PANEL>(N),
                                    (const uint16_t *)v + first * COLS + p * PANEL, COLS, N);
}

/* acc += the rows of own from `row` on times the rows of the tile from `col` on, of one panel. */
template <int MT, int NT>
__device__ __forceinline__ void add_rows_of(float acc[MT][NT][4], uint32_t own, uint32_t tile,
                                            int row, int col) {
    const int lane = lane_of();
    own += piece_at<PANEL>(row + lane % 16, lane / 16);
    tile += piece_at<PANEL>(col + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (uint32_t k = 0; k < PANEL / 16; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_matrices(a[m], (own ^ (k << 5)) + tile_bytes<PANEL>(16 * m));
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            load_matrices(b, (tile ^ (k << 5)) + tile_bytes<PANEL>(8 * n));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(acc[m][n], a[m], b[0], b[1]);
                multiply(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* acc += the rows of own from `row` on times the columns of the tile from `col` on. */
template <int MT, int NT>
__device__ __forceinline__ void add_columns_of(float acc[MT][NT][4], uint32_t own, uint32_t tile,
                                               int row, int col) {
    const int lane = lane_of();
    own += piece_at<PANEL>(row + lane % 16, lane / 16);
    tile += (uint32_t)(col / PANEL) * tile_bytes<PANEL>(PANEL) +
            piece_at<PANEL>(lane % 16, col % PANEL / 8 + lane / 16);
#pragma unroll
    for (int k = 0; k < PANEL / 16; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_matrices(a[m], (own ^ (uint32_t)(k << 5)) + tile_bytes<PANEL>(16 * m));
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, (tile ^ (uint32_t)(n << 4)) + tile_bytes<PANEL>(16 * k));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(acc[m][n], a[m], b[0], b[1]);
                multiply(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}
