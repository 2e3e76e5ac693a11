/* bf16_tile_arm.c - packed panels and the innermost loop of bf16 products with bfmmla.
 *
 * The instruction multiplies two lines of each side over four depths: [2 x 4] by [4 x 2]. A packed
 * block is therefore [16 pairs of lines][8 fours of depth][2 lines][4 depths], on both sides. */
#include "backend/cpu/bf16_arm.h"

#include <arm_neon.h>

enum {
    LINES = 2, // of each side per instruction
    DEPTHS = 4,
    GROUP = LINES * DEPTHS,         // values of a side per instruction
    PAIRS = 4,                      // pairs of lines of each side whose sums fill the registers
    PAIR = LINES * (int)BF16_DEPTH, // values of a pair of lines in a block
    BLOCK = 2 * (int)BF16_TILE,     // values of a block
    PASS = 8                        // blocks of depth after which lines still are in the L1 cache
};

/* The value at (line, k); 0 outside. */
static uint16_t value_at(const strait_bf16_side *s, int64_t line, int64_t k) {
    if (line >= s->lines || k >= s->depth) return 0;
    return s->from[line * s->line_step + k * s->depth_step];
}

/* A block of which some lines or depths are outside. */
static void pack_edge(uint16_t *to, const strait_bf16_side *s, int64_t line, int64_t k) {
    for (int64_t pair = 0; pair < BF16_PANEL; pair += LINES)
        for (int64_t four = 0; four < BF16_DEPTH; four += DEPTHS)
            for (int64_t i = 0; i < GROUP; i++)
                *to++ = value_at(s, line + pair + i / DEPTHS, k + four + i % DEPTHS);
}

/* A block of lines whose depths are contiguous: eight depths of two lines at a time. */
static void pack_by_line(uint16_t *to, const uint16_t *from, int64_t line_step) {
    for (int64_t pair = 0; pair < BF16_PANEL; pair += LINES, from += LINES * line_step)
        for (int64_t k = 0; k < BF16_DEPTH; k += GROUP, to += INT64_C(2) * GROUP) {
            const uint64x2_t upper = vreinterpretq_u64_u16(vld1q_u16(from + k));
            const uint64x2_t lower = vreinterpretq_u64_u16(vld1q_u16(from + line_step + k));
            vst1q_u16(to, vreinterpretq_u16_u64(vzip1q_u64(upper, lower)));
            vst1q_u16(to + GROUP, vreinterpretq_u16_u64(vzip2q_u64(upper, lower)));
        }
}

/* A block of contiguous lines: four depths of eight lines at a time, transposed. */
static void pack_by_depth(uint16_t *to, const uint16_t *from, int64_t depth_step) {
    for (int64_t k = 0; k < BF16_DEPTH; k += DEPTHS, to += GROUP)
        for (int64_t line = 0; line < BF16_PANEL; line += 8) {
            uint16x8_t v[DEPTHS];
            for (int64_t i = 0; i < DEPTHS; i++)
                v[i] = vld1q_u16(from + (k + i) * depth_step + line);
            const uint32x4_t a = vreinterpretq_u32_u16(vzip1q_u16(v[0], v[1]));
            const uint32x4_t b = vreinterpretq_u32_u16(vzip1q_u16(v[2], v[3]));
            const uint32x4_t c = vreinterpretq_u32_u16(vzip2q_u16(v[0], v[1]));
            const uint32x4_t d = vreinterpretq_u32_u16(vzip2q_u16(v[2], v[3]));
            uint16_t *pair = to + line / LINES * PAIR;
            vst1q_u16(pair, vreinterpretq_u16_u32(vzip1q_u32(a, b)));
            vst1q_u16(pair + PAIR, vreinterpretq_u16_u32(vzip2q_u32(a, b)));
            vst1q_u16(pair + INT64_C(2) * PAIR, vreinterpretq_u16_u32(vzip1q_u32(c, d)));
            vst1q_u16(pair + INT64_C(3) * PAIR, vreinterpretq_u16_u32(vzip2q_u32(c, d)));
        }
}

void strait_bf16_pack(uint16_t *to, const strait_bf16_side *side, int64_t line) {
    for (int64_t k = 0; k < side->depth; k += BF16_DEPTH, to += BLOCK) {
        const uint16_t *from = side->from + line * side->line_step + k * side->depth_step;
        if (line + BF16_PANEL > side->lines || k + BF16_DEPTH > side->depth)
            pack_edge(to, side, line, k);
        else if (side->depth_step == 1)
            pack_by_line(to, from, side->line_step);
        else
            pack_by_depth(to, from, side->depth_step);
    }
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
#pragma GCC unroll 1 // otherwise operands of later depths push sums out of their registers
        for (int64_t k = 0; k < PAIR; k += GROUP) {
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
 * and then added. Passes change nothing: sums are stored and loaded as they are. */
static void multiply_block(float *sums, strait_bf16_lines left, const uint16_t *right,
                           int64_t n_blocks, int adds) {
    const int64_t step = (int64_t)PAIRS * LINES;
    for (int64_t b = 0; b < n_blocks; b += PASS) {
        const uint16_t *lines = left.from + b * BLOCK, *across = right + b * BLOCK;
        const int64_t n = n_blocks - b < PASS ? n_blocks - b : PASS;
        for (int64_t i = 0; i < BF16_PANEL; i += step)
            for (int64_t j = 0; j < BF16_PANEL; j += step)
                multiply_pairs(sums + i * BF16_PANEL + j, lines + i * BF16_DEPTH,
                               across + j * BF16_DEPTH, n, adds || b > 0);
    }
}

void strait_bf16_multiply_arm(const struct strait_cpu *cpu, const strait_bf16_product *p) {
    static const strait_bf16_block_ops ops = {.multiply = multiply_block};
    strait_bf16_multiply(cpu, p, &ops);
}

void strait_bf16_attend_arm(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_attend_with(multiply_block, job, item, scratch);
}

void strait_bf16_attend_back_arm(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_attend_back_with(multiply_block, job, item, scratch);
}
