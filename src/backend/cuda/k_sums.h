/* k_sums.h - tensors whose squares are added up, as host and device share them. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_SQUARES = 120,          // tensors of one launch: as many as its arguments hold
    STRAIT_CUDA_SQUARES_SHARE = 1 << 14 // values of a block, so that the order follows from n
};

typedef struct strait_cuda_squares {
    const void *x[STRAIT_CUDA_SQUARES];
    int64_t n[STRAIT_CUDA_SQUARES];
    int64_t first[STRAIT_CUDA_SQUARES]; // block
    int count;
} strait_cuda_squares;

static_assert(sizeof(strait_cuda_squares) == 2888, "host and device layouts agree");
