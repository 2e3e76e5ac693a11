/* bf16_blocks.h - bf16 products from [32 x 32] blocks of packed panels: shared by bf16_blocks.c,
 * which splits a product, and the files that pack panels and multiply blocks with the instructions
 * of one kind of processor. */
#pragma once

#include "backend/cpu/bf16_product.h"

/* All are 64 bits wide because offsets are computed from them. */
#define BF16_PANEL INT64_C(32)  // lines (left rows, right columns) of a packed panel
#define BF16_DEPTH INT64_C(32)  // depth of a packed block; the last one is padded with zeros
#define BF16_TILE  INT64_C(512) // half of the values of a block

/* One side of a product: value (line, k) is from[line * line_step + k * depth_step], and one of the
 * steps is 1. */
typedef struct strait_bf16_side {
    const uint16_t *from;
    int64_t line_step, depth_step;
    int64_t lines, depth;
    int is_right;
} strait_bf16_side;

/* Packs the panel that starts at `line`, padded with zeros: one block after the other, each in the
 * order in which the processor's instructions read it. */
void strait_bf16_pack(uint16_t *to, const strait_bf16_side *side, int64_t line);

/* A panel of the left side, packed or in place: lines of 32 contiguous depths. Steps in values. */
typedef struct strait_bf16_lines {
    const uint16_t *from;
    int64_t line_step;  // from a line to the next
    int64_t tile_step;  // from the first 16 lines to the others
    int64_t block_step; // to the next 32 depths
} strait_bf16_lines;

/* A [32 x 32] block of the product of two panels with n_blocks blocks of depth; where adds, the
 * sums go on from what is there. */
typedef void (*strait_bf16_tile)(float *sums, strait_bf16_lines left, const uint16_t *right,
                                 int64_t n_blocks, int adds);

/* How one kind of instructions multiplies blocks. */
typedef struct strait_bf16_block_ops {
    strait_bf16_tile multiply;
    void (*begin)(void), (*end)(void); // around a run of calls in a thread; may be NULL
    int reads_lines;                   // of the left side where they are, unpacked
} strait_bf16_block_ops;

/* Whether the packed panels have room for the product. */
int strait_bf16_takes(const strait_bf16_product *p);

/* Computes the product on all threads. */
void strait_bf16_multiply(const struct strait_cpu *cpu, const strait_bf16_product *p,
                          const strait_bf16_block_ops *ops);

/* Computes one item of attention, or of its gradient, with blocks multiplied by `multiply`. */
void strait_bf16_attend_with(strait_bf16_tile multiply, const struct flash_job *job, int item,
                             float *scratch);
void strait_bf16_attend_back_with(strait_bf16_tile multiply, const struct flash_job *job, int item,
                                  float *scratch);
