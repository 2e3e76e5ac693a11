/* bf16_x86.h - shared by the files of bf16 products on x86-64, which are compiled for avx512 and
 * must only be called where the processor has it. */
#pragma once

#include "backend/cpu/bf16_product.h"

/* All are 64 bits wide because offsets are computed from them. */
#define BF16_PANEL INT64_C(32)  // lines (left rows, right columns) of a packed panel
#define BF16_DEPTH INT64_C(32)  // depth of a packed block; the last one is padded with zeros
#define BF16_TILE  INT64_C(512) // values of a tile: 16 lines x 32 of depth; two make a block

/* One side of a product: value (line, k) is from[line * line_step + k * depth_step], and one of the
 * steps is 1. */
typedef struct strait_bf16_side {
    const uint16_t *from;
    int64_t line_step, depth_step;
    int64_t lines, depth;
    int is_right;
} strait_bf16_side;

/* Packs the panel that starts at `line`, padded with zeros. Each block of depth is two tiles of 16
 * lines; a tile has 16 rows of 64 bytes: the left side a row per line, [16 lines][32 of depth], the
 * right side a row per pair of depths, [16 pairs][16 lines][2]. */
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

/* The block with vdpbf16ps. Each sum takes the pairs of depths in order: the odd
 * depth of a pair first, then the even one. */
void strait_bf16_tile_avx512(float *sums, strait_bf16_lines left, const uint16_t *right,
                             int64_t n_blocks, int adds);

/* The block with tdpbf16ps. Within 32 depths even and odd depths are summed apart, both from 0;
 * their sum is then added to the result. Every thread configures its tiles before, and releases
 * them after, a run of calls. */
void strait_bf16_tile_amx(float *sums, strait_bf16_lines left, const uint16_t *right,
                          int64_t n_blocks, int adds);
void strait_bf16_amx_begin(void);
void strait_bf16_amx_end(void);

int strait_bf16_takes(const strait_bf16_product *p);
void strait_bf16_multiply_avx512(const struct strait_cpu *cpu, const strait_bf16_product *p);
void strait_bf16_multiply_amx(const struct strait_cpu *cpu, const strait_bf16_product *p);

void strait_bf16_attend_avx512(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_amx(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_back_avx512(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_back_amx(const struct flash_job *job, int item, float *scratch);
