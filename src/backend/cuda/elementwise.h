/* elementwise.h - how kernels that make one value from one value are laid out. */
#pragma once

#include "backend/cuda/launch.h"

enum {
    STRAIT_CUDA_EACH_THREADS = 256,
    STRAIT_CUDA_EACH_VALUES = 4 // of a thread at a time, at least
};

/* Enough threads for n values, four each, and not more than keep the device busy. */
static inline strait_cuda_grid strait_cuda_each(const struct strait_stream *s, int64_t n) {
    const int64_t want = strait_cuda_pieces(n, (int64_t)STRAIT_CUDA_EACH_THREADS *
                                                   STRAIT_CUDA_EACH_VALUES);
    const int64_t most = (int64_t)strait_cuda_processors(s) * 32;
    return (strait_cuda_grid){.x = want < most ? want : most, .threads = STRAIT_CUDA_EACH_THREADS};
}
