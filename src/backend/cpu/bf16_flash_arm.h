/* bf16_flash_arm.h - vectors of attention in and out of the packed blocks of bf16_tile_arm.c, on
 * both sides [16 pairs of lines][8 fours of depth][2 lines][4 depths]. Include it through
 * bf16_flash.h. */
#pragma once

#include <arm_neon.h>

#define FLASH_DEPTHS INT64_C(4) // that store_across takes

/* v in the first n lanes, `other` in the rest; n may be negative. */
static inline vec seen_or(vec v, int64_t n, float other) {
    const ivec lane = {0, 1, 2, 3};
    return n >= LANES ? v : choose(lane < (int32_t)n, v, splat(other));
}

static inline float largest_lane(vec v) {
    return vmaxvq_f32((float32x4_t)v);
}

/* Stores the first `left` of FLASH_SPAN rounded values. */
static inline void store_rounded(uint16_t *to, vec low, vec high, int64_t left) {
    store_some(to, low, left);
    if (left > LANES) store_some(to + LANES, high, left - LANES);
}

/* Where the four depths from `depth` on of a line are in a block. */
static inline uint16_t *four_at(uint16_t *block, int64_t line, int64_t depth) {
    return block + line / 2 * 2 * BF16_DEPTH + depth * 2 + line % 2 * LANES;
}

/* FLASH_SPAN depths from `depth` on of one line of a block. */
static inline void store_line(uint16_t *block, int64_t line, int64_t depth, vec low, vec high) {
    store(four_at(block, line, depth), low);
    store(four_at(block, line, depth + LANES), high);
}

/* LANES lines from `line` on of a block: a vector per depth. Transposed before it is rounded:
 * clang 14 cannot interleave values of bf16. */
static inline void store_across(uint16_t *block, int64_t line, int64_t depth,
                                const vec v[FLASH_DEPTHS]) {
    const float64x2_t even = (float64x2_t)vtrn1q_f32((float32x4_t)v[0], (float32x4_t)v[1]);
    const float64x2_t odd = (float64x2_t)vtrn2q_f32((float32x4_t)v[0], (float32x4_t)v[1]);
    const float64x2_t even_later = (float64x2_t)vtrn1q_f32((float32x4_t)v[2], (float32x4_t)v[3]);
    const float64x2_t odd_later = (float64x2_t)vtrn2q_f32((float32x4_t)v[2], (float32x4_t)v[3]);
    store(four_at(block, line, depth), (vec)vzip1q_f64(even, even_later));
    store(four_at(block, line + 1, depth), (vec)vzip1q_f64(odd, odd_later));
    store(four_at(block, line + 2, depth), (vec)vzip2q_f64(even, even_later));
    store(four_at(block, line + 3, depth), (vec)vzip2q_f64(odd, odd_later));
}

/* Rounds LANES columns of the sums of LANES keys, which are transposed, to n rows of n_cols. */
static inline void store_transposed(act *to, int64_t ld, const float *from, int64_t n,
                                    int64_t n_cols) {
    const float32x4x4_t v = {{vld1q_f32(from), vld1q_f32(from + BF16_PANEL),
                              vld1q_f32(from + 2 * BF16_PANEL), vld1q_f32(from + 3 * BF16_PANEL)}};
    float rows[16];
    vst4q_f32(rows, v); // the transpose
    for (int64_t i = 0; i < smaller(n, LANES); i++)
        store_some(to + i * ld, load(rows + i * LANES), n_cols);
}
