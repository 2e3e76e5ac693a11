/* isa_arm.c - instruction sets of aarch64: every such processor has neon. */
#include "backend/cpu/cpu.h"

void strait_simd_table_neon(struct strait_kernel_set *set);
void strait_simd_table_neon_bf16(struct strait_kernel_set *set);

/* Neon is part of the base architecture. */
static int always(void) {
    return 1;
}

const struct strait_isa strait_isas[] = {
    {.name = "neon",
     .is_supported = always,
     .fill = strait_simd_table_neon,
     .fill_half = strait_simd_table_neon_bf16},
    {0},
};
