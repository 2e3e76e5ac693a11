/* table.c - the table of kernels, family by family. */
#include "backend/cuda/cuda.h"

void strait_cuda_table(struct strait_kernels *k) {
    strait_cuda_elementwise(k);
    strait_cuda_sums(k);
    strait_cuda_matmul(k);
    strait_cuda_optim(k);
    strait_cuda_embed(k);
    strait_cuda_norm(k);
    strait_cuda_rotate(k);
    strait_cuda_attention(k);
    strait_cuda_mlp(k);
    strait_cuda_loss(k);
    strait_cuda_payload(k);
    strait_cuda_codec(k);
    strait_cuda_local(k);
    strait_cuda_octave(k);
    strait_cuda_parts(k);
}
