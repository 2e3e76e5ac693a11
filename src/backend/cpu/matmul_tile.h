/* matmul_tile.h - the innermost part of every matrix product: packed panels and register tiles.
 *
 * The left side is packed into panels of TILE_ROWS rows, [depth][TILE_ROWS]; the right side into
 * panels of TILE_COLS columns, [depth][TILE_COLS]; the last panel is padded with zeros. A tile of
 * the result is one pass over one panel of each. Every value of a product is thus computed by the
 * same operations in the same order wherever it is stored, so bits do not depend on how the work is
 * split. */
#pragma once

#include "backend/cpu/simd.h"

#if defined(__AVX512F__)
    #include "backend/cpu/transpose_x86.h"
#endif

/* Where a tile goes: y = alpha * product + beta * y. With beta 0 the old y is not read. */
typedef struct tile_params {
    float *y;
    int64_t ld; // from one row of y to the next
    float alpha, beta;
} tile_params;

/* Lines to pack into a panel: value (line, k) is from[line * line_step + k * depth_step], which is
 * bf16 where is_half. */
typedef struct pack_source {
    const void *from;
    int is_half;
    int64_t line_step, depth_step;
} pack_source;

static inline float packed_value(pack_source lines, int64_t at) {
    return lines.is_half ? strait_cpu_widen(((const uint16_t *)lines.from)[at])
                         : ((const float *)lines.from)[at];
}

#if defined(__AVX512F__)
/* Packs whole panels of contiguous lines: 16 x 16 values at a time. Returns how much of the depth
 * is done. */
static inline __attribute__((always_inline)) int64_t pack_across(float *panel, pack_source lines,
                                                                 int64_t depth, int64_t width) {
    int64_t k = 0;
    for (; k + LANES <= depth; k += LANES)
        for (int64_t first = 0; first < width; first += LANES) {
            const int64_t n = smaller(LANES, width - first);
            const __mmask16 mask = (__mmask16)((1u << n) - 1u);
            __m512i v[16];
            for (int64_t i = 0; i < 16; i++) {
                const int64_t at = (first + (i < n ? i : 0)) * lines.line_step + k;
                v[i] = (__m512i)(lines.is_half ? load_half((const uint16_t *)lines.from + at)
                                               : load_f32((const float *)lines.from + at));
            }
            strait_transpose(v);
            for (int64_t i = 0; i < 16; i++)
                _mm512_mask_storeu_epi32(panel + (k + i) * width + first, mask, v[i]);
        }
    return k;
}
#endif

/* Packs `n` <= width lines of `depth` values into a panel. Inlined, so that the type and the width
 * are constants. */
static inline __attribute__((always_inline)) void pack_panel(float *panel, pack_source lines,
                                                             int64_t n, int64_t depth,
                                                             int64_t width) {
    const int64_t step = lines.depth_step;
    if (n < width) {
        memset(panel, 0, (size_t)(depth * width) * sizeof *panel);
        for (int64_t line = 0; line < n; line++)
            for (int64_t k = 0; k < depth; k++)
                panel[k * width + line] = packed_value(lines, line * lines.line_step + k * step);
    } else if (lines.line_step == 1 && !lines.is_half) {
        for (int64_t k = 0; k < depth; k++)
            memcpy(panel + k * width, (const float *)lines.from + k * step,
                   (size_t)width * sizeof *panel);
    } else if (lines.line_step == 1) {
        for (int64_t k = 0; k < depth; k++)
            for (int64_t line = 0; line < width; line++)
                panel[k * width + line] = packed_value(lines, line + k * step);
    } else {
        int64_t k = 0;
#if defined(__AVX512F__)
        if (step == 1) k = pack_across(panel, lines, depth, width);
#endif
        for (; k < depth; k++)
            for (int64_t line = 0; line < width; line++)
                panel[k * width + line] = packed_value(lines, line * lines.line_step + k * step);
    }
}

// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses): read as functions
/* `from` is a pointer to values of either type. */
#define IS_HALF(from) BY_TYPE(from, 0, 1)
#define pack_left(panel, from, line_step, depth_step, n, depth)                            \
    pack_panel(panel, (pack_source){from, IS_HALF(from), line_step, depth_step}, n, depth, \
               TILE_ROWS)
#define pack_right(panel, from, line_step, depth_step, n, depth)                           \
    pack_panel(panel, (pack_source){from, IS_HALF(from), line_step, depth_step}, n, depth, \
               TILE_COLS)
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)

/* One whole tile of y from a left and a right panel. The left side is packed, or lines of
 * contiguous depths, `line` values apart. Inlined, so that the lines of a packed panel are
 * constants. */
static inline __attribute__((always_inline)) void multiply_lines(tile_params params,
                                                                 const float *left, int64_t line,
                                                                 const float *right,
                                                                 int64_t depth) {
    const int64_t step = line == 1 ? TILE_ROWS : 1;
#if !defined(__aarch64__)
    /* Three lines per pointer: so many addresses fit the registers. */
    const float *three[(TILE_ROWS + 2) / 3];
    for (int64_t i = 0; i < (TILE_ROWS + 2) / 3; i++)
        three[i] = left + 3 * i * line;
#endif
    for (int i = 0; i < TILE_ROWS; i++) // y arrives in the cache while the sums run
        __builtin_prefetch(params.y + i * params.ld, 1);
    vec sum[TILE_ROWS][TILE_VECTORS] = {0};
    for (int64_t k = 0; k < depth; k++, left += step, right += TILE_COLS) {
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
                sum[i][j] += b[j] * three[i / 3][i % 3 * line];
    #pragma GCC unroll 4
        for (int i = 0; i < (TILE_ROWS + 2) / 3; i++)
            three[i] += step;
#endif
    }
    /* Otherwise the compiler keeps the addresses of the prefetches, and sums go to the stack. */
    __asm__("" : "+r"(params.ld));
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_VECTORS; j++) {
            float *y = params.y + i * params.ld + j * LANES;
            store(y, params.beta == 0.0f ? sum[i][j] * params.alpha
                                         : sum[i][j] * params.alpha + load(y) * params.beta);
        }
}

/* Functions of their own: what the caller keeps in registers would push sums to the stack. */
static __attribute__((noinline, unused)) void multiply_tile(tile_params params, const float *left,
                                                            const float *right, int64_t depth) {
    multiply_lines(params, left, 1, right, depth);
}

static __attribute__((noinline, unused)) void multiply_in_place(tile_params params,
                                                                const float *left, int64_t line,
                                                                const float *right, int64_t depth) {
    multiply_lines(params, left, line, right, depth);
}

/* The same for a tile of which only n_rows x n_cols are inside y: through a full tile on the stack,
 * so that edges take the same operations as the rest. */
static inline void multiply_edge(tile_params params, const float *left, int64_t line,
                                 const float *right, int64_t depth, int64_t n_rows,
                                 int64_t n_cols) {
    float whole[TILE_ROWS * TILE_COLS] = {0};
    if (params.beta != 0.0f)
        for (int64_t i = 0; i < n_rows; i++)
            memcpy(whole + i * TILE_COLS, params.y + i * params.ld, (size_t)n_cols * sizeof *whole);
    const tile_params inside = {whole, TILE_COLS, params.alpha, params.beta};
    if (line == 1)
        multiply_tile(inside, left, right, depth);
    else
        multiply_in_place(inside, left, line, right, depth);
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(params.y + i * params.ld, whole + i * TILE_COLS, (size_t)n_cols * sizeof *whole);
}
