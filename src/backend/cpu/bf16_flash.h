/* bf16_flash.h - shared by the forward and backward of attention with bf16 units.
 *
 * All products are of [32 x 32] blocks, from panels of bf16_blocks.h. Scores have a row per query.
 * Shares (of the softmax) and gradients of scores are rounded to bf16 before the next product
 * reads them; the softmax and all sums are f32. Blocks above the diagonal are skipped.
 *
 * How values enter a packed block depends on the processor: bf16_flash_x86.h and bf16_flash_arm.h
 * define the same functions. */
#pragma once

#include "backend/cpu/bf16_blocks.h"
#include "backend/cpu/flash.h"

#define FLASH_BLOCK  (BF16_PANEL * BF16_PANEL)        // values of a block
#define FLASH_SPAN   (2 * LANES)                      // values that are rounded together
#define CHUNK_BLOCKS (STRAIT_BF16_CHUNK / BF16_PANEL) // of queries, and of keys, in a chunk

#if defined(__aarch64__)
    #include "backend/cpu/bf16_flash_arm.h"
#else
    #include "backend/cpu/bf16_flash_x86.h"
#endif

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
