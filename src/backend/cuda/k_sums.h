/* k_sums.h - tensors whose squares are summed by one launch, shared by host and device. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_SQUARES = 120,          // tensors per launch: as many as 4 KiB of arguments hold
    STRAIT_CUDA_SQUARES_SHARE = 1 << 14 // values per block: fixed, so the order follows from n
};

typedef struct strait_cuda_squares {
    const void *x[STRAIT_CUDA_SQUARES];
    int64_t n[STRAIT_CUDA_SQUARES];
    int64_t first[STRAIT_CUDA_SQUARES]; // first block of each tensor
    int count;
} strait_cuda_squares;

static_assert(sizeof(strait_cuda_squares) == 2888, "host and device layouts agree");
