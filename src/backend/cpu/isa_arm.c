/* isa_arm.c - what aarch64 processors can do: all of them have neon. */
#include "backend/cpu/cpu.h"

void strait_simd_table_neon(struct strait_kernel_set *set);

static int always(void) {
    return 1;
}

const struct strait_isa strait_isas[] = {
    {.name = "neon", .is_here = always, .fill = strait_simd_table_neon},
    {0},
};
