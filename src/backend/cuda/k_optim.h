/* k_optim.h - one AdamW update, as host and device share it. */
#pragma once

#include <stdint.h>

typedef struct strait_cuda_adamw {
    float *weight, *m, *v;
    const float *grad;
    const float *scale; // or NULL
    uint16_t *copy;     // bf16; or NULL
    int64_t rows, cols;
    float beta1, beta2;
    float keep;          // of a weight, after decay
    float rate;          // over the part of 1 that m has seen
    float root, epsilon; // the denominator is sqrt(v) * root + epsilon
} strait_cuda_adamw;
