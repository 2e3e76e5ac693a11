/* table.c - fills the set of kernels, family by family. */
#include "backend/cuda/cuda.h"

/* The order does not matter: families set different entries. */
void strait_cuda_table(struct strait_kernel_set *set) {
    strait_cuda_elementwise(set);
    strait_cuda_sums(set);
    strait_cuda_matmul(set);
    strait_cuda_optim(set);
    strait_cuda_embed(set);
    strait_cuda_norm(set);
    strait_cuda_rotate(set);
    strait_cuda_attention(set);
    strait_cuda_mlp(set);
    strait_cuda_loss(set);
    strait_cuda_sample(set);
    strait_cuda_payload(set);
    strait_cuda_codec(set);
    strait_cuda_conv(set);
    strait_cuda_columns(set);
    strait_cuda_log_scale(set);
    strait_cuda_autoencoder(set);
    strait_cuda_groups(set);
    strait_cuda_norm_conv(set);
    strait_cuda_conv_rotate(set);
}
