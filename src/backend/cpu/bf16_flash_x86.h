/* bf16_flash_x86.h - shared by the forward and backward of attention with bf16 units.
 *
 * All products are of [32 x 32] blocks, from panels of bf16_x86.h. Scores have a row per query.
 * Shares (of the softmax) and gradients of scores are rounded to bf16 before the next product
 * reads them; the softmax and all sums are f32. Blocks above the diagonal are skipped. */
#pragma once

#include "backend/cpu/bf16_x86.h"
#include "backend/cpu/flash.h"

#define FLASH_BLOCK  (BF16_PANEL * BF16_PANEL)        // values of a block
#define CHUNK_BLOCKS (STRAIT_BF16_CHUNK / BF16_PANEL) // of queries, and of keys, in a chunk

/* Blocks of 32 that cover n. */
static inline int64_t blocks_of(int64_t n) {
    return pieces(n, BF16_PANEL);
}

/* A packed panel of lines. */
static inline strait_bf16_lines packed_lines(const uint16_t *panel) {
    return (strait_bf16_lines){panel, BF16_DEPTH, BF16_TILE, 2 * BF16_TILE};
}

/* Packs all panels of a side, one after the other. */
static inline void pack_side(uint16_t *to, const strait_bf16_side *side) {
    const int64_t panel = blocks_of(side->depth) * FLASH_BLOCK;
    for (int64_t line = 0; line < side->lines; line += BF16_PANEL, to += panel)
        strait_bf16_pack(to, side, line);
}

/* n rows of a head as a side whose lines are the rows, or its columns where by_dim. */
static inline strait_bf16_side rows_side(const uint16_t *from, int64_t ld, int64_t n, int64_t dim,
                                         int by_dim, int is_right) {
    return (strait_bf16_side){.from = from,
                              .line_step = by_dim ? 1 : ld,
                              .depth_step = by_dim ? ld : 1,
                              .lines = by_dim ? dim : n,
                              .depth = by_dim ? n : dim,
                              .is_right = is_right};
}

/* 32 values rounded to nearest, half to even; subnormal ones become 0. */
static inline __m512i round_pair(vec low, vec high) {
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* The lanes of 16 keys from `key` on of which the first n_valid are seen. */
static inline __mmask16 seen_lanes(int64_t n_valid, int64_t key) {
    const int64_t n = n_valid - key;
    return (__mmask16)(n >= LANES ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}

/* Stores up to 32 rounded values. */
static inline void store_rounded(uint16_t *to, vec low, vec high, int64_t left) {
    const __mmask32 mask = left >= 32 ? 0xffffffffu : (1u << left) - 1u;
    _mm512_mask_storeu_epi16(to, mask, round_pair(low, high));
}
