/* bf16_arm.h - bf16 products and attention on aarch64, in a file that is compiled for processors
 * with bf16 instructions and must only be called there. */
#pragma once

#include "backend/cpu/bf16_blocks.h"

void strait_bf16_multiply_arm(const struct strait_cpu *cpu, const strait_bf16_product *p);
void strait_bf16_attend_arm(const struct flash_job *job, int item, float *scratch);
void strait_bf16_attend_back_arm(const struct flash_job *job, int item, float *scratch);
