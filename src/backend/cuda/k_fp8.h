/* k_fp8.h - the head of a product's scratch, shared by host and device: fp8.c queues the kernels of
 * k_fp8.cu, which fill it. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_FP8_ROWS = 128, // of a tile that is transposed
    STRAIT_CUDA_FP8_COLS = 64,
    STRAIT_CUDA_FP8_THREADS = 256,
    STRAIT_CUDA_FP8_EACH = 16 // values of a thread
};

/* Of one factor. cublasLt reads the scale, whose address it may want aligned like those of
 * matrices. */
typedef struct strait_cuda_fp8_scale {
    float value;      // what cublasLt multiplies the rounded values by
    uint32_t largest; // bits of the largest magnitude, as bf16
    uint32_t unused[14];
} strait_cuda_fp8_scale;

/* Index 0 is factor a, 1 is b. */
typedef struct strait_cuda_fp8_head {
    strait_cuda_fp8_scale of[2];
} strait_cuda_fp8_head;

static_assert(sizeof(strait_cuda_fp8_head) == 128, "host and device layouts agree");
