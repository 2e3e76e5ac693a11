/* k_optim.h - arguments of AdamW updates, shared by host and device.
 *
 *   w = w keep - m / (sqrt(v) root + epsilon) rate */
#pragma once

#include <assert.h>
#include <stdint.h>

typedef struct strait_cuda_adamw {
    float *weight, *m, *v;
    const float *grad;
    const float *scale; // clipping factor of gradients, or NULL
    const float *norm;  // or NULL; where it is non-finite nothing is written
    uint16_t *copy;     // bf16 copy of the weight, or NULL
    int64_t rows, cols;
    float beta1, beta2;
    float keep; // 1 - learning rate * weight decay
    float rate; // learning rate / (1 - beta1^step)
    float root; // 1 / sqrt(1 - beta2^step)
    float epsilon;
} strait_cuda_adamw;

enum {
    STRAIT_CUDA_UPDATES = 38,           // weights per launch: as many as 4 KiB of arguments hold
    STRAIT_CUDA_UPDATES_SHARE = 1 << 12 // values per block
};

typedef struct strait_cuda_updates {
    strait_cuda_adamw of[STRAIT_CUDA_UPDATES];
    int64_t first[STRAIT_CUDA_UPDATES]; // first block of each weight
    int count;
} strait_cuda_updates;

static_assert(sizeof(strait_cuda_adamw) == 96, "host and device layouts agree");
static_assert(sizeof(strait_cuda_updates) <= 4096, "kernel arguments take at most 4 KiB");
