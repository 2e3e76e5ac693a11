/* bf16_flash_x86.h - vectors of attention in and out of the packed blocks of bf16_x86.h. Include it
 * through bf16_flash.h. */
#pragma once

#include "backend/cpu/transpose_x86.h"

#define FLASH_DEPTHS INT64_C(2) // that store_across takes

/* 32 values rounded to nearest, half to even; subnormal ones become 0. */
static inline __m512i round_pair(vec low, vec high) {
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* v in the first n lanes, `other` in the rest; n may be negative. */
static inline vec seen_or(vec v, int64_t n, float other) {
    const __mmask16 seen = (__mmask16)(n >= LANES ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
    return (vec)_mm512_mask_mov_ps(_mm512_set1_ps(other), seen, (__m512)v);
}

static inline float largest_lane(vec v) {
    return _mm512_reduce_max_ps((__m512)v);
}

/* Stores the first `left` of FLASH_SPAN rounded values. */
static inline void store_rounded(uint16_t *to, vec low, vec high, int64_t left) {
    const __mmask32 mask = left >= 32 ? 0xffffffffu : (1u << left) - 1u;
    _mm512_mask_storeu_epi16(to, mask, round_pair(low, high));
}

/* FLASH_SPAN depths from `depth` on of one line of a left block. */
static inline void store_line(uint16_t *block, int64_t line, int64_t depth, vec low, vec high) {
    _mm512_storeu_si512(block + line * BF16_DEPTH + depth, round_pair(low, high));
}

/* LANES lines from `line` on of a right block: a vector per depth. */
static inline void store_across(uint16_t *block, int64_t line, int64_t depth,
                                const vec v[FLASH_DEPTHS]) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
                                           24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                           16, 0);
    _mm512_storeu_si512(block + line * BF16_TILE / LANES + depth * LANES,
                        _mm512_permutexvar_epi16(order, round_pair(v[0], v[1])));
}

/* Rounds LANES columns of the sums of LANES keys, which are transposed, to n rows of n_cols. */
static inline void store_transposed(act *to, int64_t ld, const float *from, int64_t n,
                                    int64_t n_cols) {
    const __mmask16 mask = (__mmask16)(n_cols >= LANES ? 0xffffu : (1u << n_cols) - 1u);
    __m512i v[16];
    for (int64_t i = 0; i < 16; i++)
        v[i] = _mm512_loadu_si512(from + i * BF16_PANEL);
    strait_transpose(v);
    for (int64_t i = 0; i < smaller(n, 16); i++)
        _mm256_mask_storeu_epi16(to + i * ld, mask, (__m256i)_mm512_cvtneps_pbh((__m512)v[i]));
}
