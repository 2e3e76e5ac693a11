/* bf16_tile_arm.c - packed panels and the innermost loop of bf16 products with bfmmla.
 *
 * The instruction multiplies two lines of each side over four depths: [2 x 4] by [4 x 2]. A packed
 * block is therefore [16 pairs of lines][8 fours of depth][2 lines][4 depths], on both sides. */
#include "backend/cpu/bf16_arm.h"

#include <arm_neon.h>

enum {
    LINES = 2, // of each side per instruction
    DEPTHS = 4,
    PAIRS = 4,                      // pairs of lines of each side whose sums fill the registers
    PAIR = LINES * (int)BF16_DEPTH, // values of a pair of lines in a block
    BLOCK = 2 * (int)BF16_TILE      // values of a block
};

/* The value at (line, k); 0 outside. */
static uint16_t value_at(const strait_bf16_side *s, int64_t line, int64_t k) {
    if (line >= s->lines || k >= s->depth) return 0;
    return s->from[line * s->line_step + k * s->depth_step];
}

/* Four depths of one line from k on. */
static void pack_four(uint16_t *to, const strait_bf16_side *s, int64_t line, int64_t k) {
    if (s->depth_step == 1 && line < s->lines && k + DEPTHS <= s->depth) {
        memcpy(to, s->from + line * s->line_step + k, DEPTHS * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < DEPTHS; i++)
        to[i] = value_at(s, line, k + i);
}

void strait_bf16_pack(uint16_t *to, const strait_bf16_side *side, int64_t line) {
    for (int64_t k0 = 0; k0 < side->depth; k0 += BF16_DEPTH)
        for (int64_t pair = line; pair < line + BF16_PANEL; pair += LINES)
            for (int64_t k = k0; k < k0 + BF16_DEPTH; k += DEPTHS)
                for (int64_t i = 0; i < LINES; i++, to += DEPTHS)
                    pack_four(to, side, pair + i, k);
}

static bfloat16x8_t load_pair(const uint16_t *from) {
    return vreinterpretq_bf16_u16(vld1q_u16(from));
}

/* Four pairs of lines of each side: [8 x 8] sums. A register holds [2 x 2] of them. */
static void multiply_pairs(float *sums, const uint16_t *left, const uint16_t *right,
                           int64_t n_blocks, int adds) {
    float32x4_t sum[PAIRS][PAIRS];
    for (int64_t i = 0; i < PAIRS; i++)
        for (int64_t j = 0; j < PAIRS; j++) {
            const float *from = sums + i * LINES * BF16_PANEL + j * LINES;
            sum[i][j] = adds ? vcombine_f32(vld1_f32(from), vld1_f32(from + BF16_PANEL))
                             : vdupq_n_f32(0);
        }
    for (int64_t b = 0; b < n_blocks; b++, left += BLOCK, right += BLOCK)
        for (int64_t k = 0; k < PAIR; k += LINES * DEPTHS) {
            bfloat16x8_t across[PAIRS];
            for (int64_t j = 0; j < PAIRS; j++)
                across[j] = load_pair(right + j * PAIR + k);
            for (int64_t i = 0; i < PAIRS; i++) {
                const bfloat16x8_t down = load_pair(left + i * PAIR + k);
                for (int64_t j = 0; j < PAIRS; j++)
                    sum[i][j] = vbfmmlaq_f32(sum[i][j], down, across[j]);
            }
        }
    for (int64_t i = 0; i < PAIRS; i++)
        for (int64_t j = 0; j < PAIRS; j++) {
            float *to = sums + i * LINES * BF16_PANEL + j * LINES;
            vst1_f32(to, vget_low_f32(sum[i][j]));
            vst1_f32(to + BF16_PANEL, vget_high_f32(sum[i][j]));
        }
}

/* Sums take the depths in order, two at a time: the sum of a pair's products is rounded (to odd)
 * and then added. */
static void multiply_block(float *sums, strait_bf16_lines left, const uint16_t *right,
                           int64_t n_blocks, int adds) {
    const int64_t step = (int64_t)PAIRS * LINES;
    for (int64_t i = 0; i < BF16_PANEL; i += step)
        for (int64_t j = 0; j < BF16_PANEL; j += step)
            multiply_pairs(sums + i * BF16_PANEL + j, left.from + i * BF16_DEPTH,
                           right + j * BF16_DEPTH, n_blocks, adds);
}

void strait_bf16_multiply_arm(const struct strait_cpu *cpu, const strait_bf16_product *p) {
    static const strait_bf16_block_ops ops = {.multiply = multiply_block};
    strait_bf16_multiply(cpu, p, &ops);
}
