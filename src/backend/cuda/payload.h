/* payload.h - how packing kernels split rows over lanes, and the largest magnitude of each row. */
#pragma once

#include "backend/cuda/cuda.h"
#include "backend/cuda/launch.h"

enum {
    STRAIT_CUDA_LANES = 256 // threads per block
};

/* How many lanes of a warp share a row of n items, four each: a power of two. */
static inline int strait_cuda_row_lanes(int64_t n) {
    int64_t lanes = 1;
    while (lanes < 32 && lanes * 4 < n)
        lanes *= 2;
    return (int)lanes;
}

static inline strait_cuda_grid strait_cuda_by_lanes(int64_t rows, int n_lanes) {
    return (strait_cuda_grid){.x = strait_cuda_pieces(rows * n_lanes, STRAIT_CUDA_LANES),
                              .threads = STRAIT_CUDA_LANES};
}

/* The largest magnitude of each row, and of each of n_parts parts of the rows, in scratch. The next
 * kernel reduces the parts: they are few enough for every block to read. */
typedef struct strait_cuda_largest {
    float *of_block, *of_row;
    int n_parts;
} strait_cuda_largest;

/* Queues the search over the first `cols` columns of x, which is f32. */
strait_err strait_cuda_find_largest(struct strait_stream *s, strait_tensor x, int64_t cols,
                                    strait_cuda_largest *out);
