/* table.c - the table of kernels, family by family. */
#include "backend/cuda/cuda.h"

void strait_cuda_table(struct strait_kernels *k) {
    strait_cuda_elementwise(k);
    strait_cuda_sums(k);
    strait_cuda_matmul(k);
    strait_cuda_optim(k);
}
