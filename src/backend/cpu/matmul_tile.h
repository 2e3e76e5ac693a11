/* matmul_tile.h - the innermost part of every matrix product: packed panels and register tiles.
 *
 * The left side is packed into panels of TILE_ROWS rows, [depth][TILE_ROWS]; the right side into
 * panels of TILE_COLS columns, [depth][TILE_COLS]; the last panel is padded with zeros. A tile of
 * the result is one pass over one panel of each. Every value of a product is thus computed by the
 * same operations in the same order wherever it is stored, so bits do not depend on how the work is
 * split. */
#pragma once

#include "backend/cpu/simd.h"

/* Where a tile goes: y = alpha * product + beta * y. With beta 0 the old y is not read. */
typedef struct tile_params {
    float *y;
    int64_t ld; // from one row of y to the next
    float alpha, beta;
} tile_params;

/* Packs `n` <= width lines of `depth` values into a panel. Value (line, k) is
 * from[line * line_step + k * depth_step]. */
static inline void pack_panel(float *panel, const float *from, int64_t line_step,
                              int64_t depth_step, int64_t n, int64_t depth, int64_t width) {
    if (n < width) {
        memset(panel, 0, (size_t)(depth * width) * sizeof *panel);
        for (int64_t line = 0; line < n; line++)
            for (int64_t k = 0; k < depth; k++)
                panel[k * width + line] = from[line * line_step + k * depth_step];
    } else if (line_step == 1) {
        for (int64_t k = 0; k < depth; k++)
            memcpy(panel + k * width, from + k * depth_step, (size_t)width * sizeof *panel);
    } else {
        for (int64_t k = 0; k < depth; k++)
            for (int64_t line = 0; line < width; line++)
                panel[k * width + line] = from[line * line_step + k * depth_step];
    }
}

static inline void pack_left(float *panel, const float *from, int64_t line_step, int64_t depth_step,
                             int64_t n, int64_t depth) {
    pack_panel(panel, from, line_step, depth_step, n, depth, TILE_ROWS);
}

static inline void pack_right(float *panel, const float *from, int64_t line_step,
                              int64_t depth_step, int64_t n, int64_t depth) {
    pack_panel(panel, from, line_step, depth_step, n, depth, TILE_COLS);
}

/* One whole tile of y from a left and a right panel. */
static inline void multiply_tile(tile_params params, const float *left, const float *right,
                                 int64_t depth) {
    for (int i = 0; i < TILE_ROWS; i++) // y arrives in the cache while the sums run
        __builtin_prefetch(params.y + i * params.ld, 1);
    vec sum[TILE_ROWS][TILE_VECTORS] = {0};
    for (int64_t k = 0; k < depth; k++, left += TILE_ROWS, right += TILE_COLS) {
        vec b[TILE_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++)
            b[j] = load(right + j * LANES);
#if defined(__aarch64__) // neon multiplies by one lane of a register, which needs fewer registers
        vec a[TILE_ROWS / LANES];
    #pragma GCC unroll 4
        for (int i = 0; i < TILE_ROWS / LANES; i++)
            a[i] = load(left + i * LANES);
    #pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++)
    #pragma GCC unroll 4
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] += b[j] * a[i / LANES][i % LANES];
#else
    #pragma GCC unroll 16
        for (int i = 0; i < TILE_ROWS; i++)
    #pragma GCC unroll 4
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] += b[j] * left[i];
#endif
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) {
            float *y = params.y + i * params.ld + j * LANES;
            store(y, params.beta == 0.0f ? sum[i][j] * params.alpha
                                         : sum[i][j] * params.alpha + load(y) * params.beta);
        }
}

/* The same for a tile of which only n_rows x n_cols are inside y: through a full tile on the stack,
 * so that edges take the same operations as the rest. */
static inline void multiply_edge(tile_params params, const float *left, const float *right,
                                 int64_t depth, int64_t n_rows, int64_t n_cols) {
    float whole[TILE_ROWS * TILE_COLS] = {0};
    if (params.beta != 0.0f)
        for (int64_t i = 0; i < n_rows; i++)
            memcpy(whole + i * TILE_COLS, params.y + i * params.ld, (size_t)n_cols * sizeof *whole);
    multiply_tile((tile_params){whole, TILE_COLS, params.alpha, params.beta}, left, right, depth);
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(params.y + i * params.ld, whole + i * TILE_COLS, (size_t)n_cols * sizeof *whole);
}
