/* isa_x86.c - what x86-64 processors can do, asked of the one at hand. */
#include "backend/cpu/cpu.h"

void strait_simd_table_sse2(struct strait_kernels *k);
void strait_simd_table_avx2(struct strait_kernels *k);
void strait_simd_table_avx512(struct strait_kernels *k);

static int always(void) {
    return 1;
}

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct strait_isa strait_isas[] = {
    {.name = "sse2", .is_here = always, .fill = strait_simd_table_sse2},
    {.name = "avx2", .is_here = has_avx2, .fill = strait_simd_table_avx2},
    {.name = "avx512", .is_here = has_avx512, .fill = strait_simd_table_avx512},
    {0},
};
