/* simd_table.c - collects all fast kernels of one instruction set, with f32 or bf16 activations. */
#include "backend/cpu/simd.h"

void SIMD(table)(struct strait_kernel_set *set);

/* Compiled once per instruction set: SIMD adds its name. Kernels that no file replaces stay the
 * reference loops. */
void SIMD(table)(struct strait_kernel_set *set) {
    SIMD(matmul)(set);
    SIMD(attention)(set);
    SIMD(attention_back)(set);
    SIMD(elementwise)(set);
    SIMD(embed)(set);
    SIMD(norm)(set);
    SIMD(rotate)(set);
    SIMD(mlp)(set);
    SIMD(loss)(set);
    SIMD(conv)(set);
#if !ACT_IS_HALF // these have no activations, or take both types
    SIMD(cast)(set);
    SIMD(sample)(set);
    SIMD(optim)(set);
    SIMD(payload)(set);
    SIMD(codec)(set);
#endif
}
