/* isa_other.c - an unknown processor: vectors of four floats, compiled to what it has. */
#include "backend/cpu/cpu.h"

void strait_simd_table_portable(struct strait_kernel_set *set);
void strait_simd_table_portable_bf16(struct strait_kernel_set *set);

/* The compiler lowers vectors of four floats to whatever the processor has. */
static int always(void) {
    return 1;
}

const struct strait_isa strait_isas[] = {
    {.name = "portable",
     .is_supported = always,
     .fill = strait_simd_table_portable,
     .fill_half = strait_simd_table_portable_bf16},
    {0},
};
