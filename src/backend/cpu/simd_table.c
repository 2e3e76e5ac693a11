/* simd_table.c - collects all fast kernels of one instruction set. */
#include "backend/cpu/simd.h"

void SIMD(table)(struct strait_kernel_set *set);

/* Compiled once per instruction set: SIMD adds its name. Kernels that no file replaces stay the
 * reference loops. */
void SIMD(table)(struct strait_kernel_set *set) {
    SIMD(matmul)(set);
    SIMD(attention)(set);
    SIMD(attention_back)(set);
    SIMD(elementwise)(set);
    SIMD(cast)(set);
    SIMD(embed)(set);
    SIMD(norm)(set);
    SIMD(rotate)(set);
    SIMD(mlp)(set);
    SIMD(loss)(set);
    SIMD(optim)(set);
    SIMD(payload)(set);
    SIMD(codec)(set);
    SIMD(conv)(set);
}
