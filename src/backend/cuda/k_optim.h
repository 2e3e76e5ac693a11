/* k_optim.h - one AdamW update, as host and device share it. */
#pragma once

#include <assert.h>
#include <stdint.h>

typedef struct strait_cuda_adamw {
    float *weight, *m, *v;
    const float *grad;
    const float *scale; // or NULL
    const float *norm;  // or NULL; where it is not finite nothing changes
    uint16_t *copy;     // bf16; or NULL
    int64_t rows, cols;
    float beta1, beta2;
    float keep;          // of a weight, after decay
    float rate;          // over the part of 1 that m has seen
    float root, epsilon; // the denominator is sqrt(v) * root + epsilon
} strait_cuda_adamw;

enum {
    STRAIT_CUDA_UPDATES = 38,           // weights of one launch: as many as its arguments hold
    STRAIT_CUDA_UPDATES_SHARE = 1 << 12 // values of a block
};

typedef struct strait_cuda_updates {
    strait_cuda_adamw of[STRAIT_CUDA_UPDATES];
    int64_t first[STRAIT_CUDA_UPDATES]; // block
    int count;
} strait_cuda_updates;

static_assert(sizeof(strait_cuda_adamw) == 96, "host and device layouts agree");
static_assert(sizeof(strait_cuda_updates) <= 4096, "kernel arguments take at most 4 KiB");
