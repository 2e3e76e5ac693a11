/* isa_arm.c - instruction sets of aarch64: every such processor has neon. */
#include "backend/cpu/bf16_product.h"

void strait_simd_table_neon(struct strait_kernel_set *set);
void strait_simd_table_neon_bf16(struct strait_kernel_set *set);
void strait_simd_table_neon_rounding(struct strait_kernel_set *set);

/* Neon is part of the base architecture. */
static int always(void) {
    return 1;
}

/* Both copies give the same bits. */
static void fill_half(struct strait_kernel_set *set) {
    if (strait_bf16_units[0].is_supported())
        strait_simd_table_neon_rounding(set);
    else
        strait_simd_table_neon_bf16(set);
}

const struct strait_isa strait_isas[] = {
    {.name = "neon",
     .is_supported = always,
     .fill = strait_simd_table_neon,
     .fill_half = fill_half},
    {0},
};
