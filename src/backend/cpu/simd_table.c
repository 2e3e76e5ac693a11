/* simd_table.c - all fast kernels of one instruction set. */
#include "backend/cpu/simd.h"

void SIMD(table)(struct strait_kernels *k);

void SIMD(table)(struct strait_kernels *k) {
    SIMD(matmul)(k);
    SIMD(attention)(k);
    SIMD(attention_back)(k);
    SIMD(elementwise)(k);
    SIMD(cast)(k);
    SIMD(embed)(k);
    SIMD(norm)(k);
    SIMD(rotate)(k);
    SIMD(mlp)(k);
    SIMD(loss)(k);
    SIMD(optim)(k);
    SIMD(payload)(k);
    SIMD(codec)(k);
    SIMD(local)(k);
}
