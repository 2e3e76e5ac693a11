/* isa_other.c - a processor we know nothing of: vectors of four, as the compiler sees fit. */
#include "backend/cpu/cpu.h"

void strait_simd_table_portable(struct strait_kernel_set *set);

static int always(void) {
    return 1;
}

const struct strait_isa strait_isas[] = {
    {.name = "portable", .is_here = always, .fill = strait_simd_table_portable},
    {0},
};
