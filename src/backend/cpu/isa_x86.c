/* isa_x86.c - instruction sets of x86-64, detected when the backend opens. */
#include "backend/cpu/cpu.h"
#include "base/x86.h"

void strait_simd_table_sse2(struct strait_kernel_set *set);
void strait_simd_table_sse2_bf16(struct strait_kernel_set *set);
void strait_simd_table_avx2(struct strait_kernel_set *set);
void strait_simd_table_avx2_bf16(struct strait_kernel_set *set);
void strait_simd_table_avx512(struct strait_kernel_set *set);
void strait_simd_table_avx512_bf16(struct strait_kernel_set *set);

/* From the oldest to the newest: the last supported one is used. */
const struct strait_isa strait_isas[] = {
    {.name = "sse2",
     .is_supported = strait_x86_always,
     .fill = strait_simd_table_sse2,
     .fill_half = strait_simd_table_sse2_bf16},
    {.name = "avx2",
     .is_supported = strait_x86_has_avx2,
     .fill = strait_simd_table_avx2,
     .fill_half = strait_simd_table_avx2_bf16},
    {.name = "avx512",
     .is_supported = strait_x86_has_avx512,
     .fill = strait_simd_table_avx512,
     .fill_half = strait_simd_table_avx512_bf16},
    {0},
};
