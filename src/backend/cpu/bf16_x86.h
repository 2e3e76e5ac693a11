/* bf16_x86.h - bf16 products and attention on x86-64, in files that are compiled for avx512 and
 * must only be called where the processor has it.
 *
 * A packed block is two tiles of 16 lines; a tile has 16 rows of 64 bytes: the left side a row per
 * line, [16 lines][32 of depth], the right side a row per pair of depths, [16 pairs][16 lines][2].
 */
#pragma once

#include "backend/cpu/bf16_blocks.h"

/* The block with vdpbf16ps. Each sum takes the pairs of depths in order: the odd depth of a pair
 * first, then the even one. */
void strait_bf16_tile_avx512(float *sums, strait_bf16_lines left, const uint16_t *right,
                             int64_t n_blocks, int adds);

/* The block with tdpbf16ps. Within 32 depths even and odd depths are summed apart, both from 0;
 * their sum is then added to the result. Every thread configures its tiles before, and releases
 * them after, a run of calls. */
void strait_bf16_tile_amx(float *sums, strait_bf16_lines left, const uint16_t *right,
                          int64_t n_blocks, int adds);
void strait_bf16_amx_begin(void);
void strait_bf16_amx_end(void);

void strait_bf16_multiply_avx512(const struct strait_cpu *cpu, const strait_bf16_product *p);
void strait_bf16_multiply_amx(const struct strait_cpu *cpu, const strait_bf16_product *p);

void strait_bf16_attend_avx512(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_amx(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_back_avx512(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_back_amx(const struct flash_job *job, int item, float *scratch);
