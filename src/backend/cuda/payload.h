/* payload.h - the largest values of rows on their way to the wire. */
#pragma once

#include "backend/cuda/cuda.h"

/* The largest size of each row, and of each of n_parts parts of the rows; scratch. */
typedef struct strait_cuda_largest {
    float *of_block, *of_row;
    int n_parts;
} strait_cuda_largest;

/* Of the first `cols` columns of x, f32. */
strait_err strait_cuda_find_largest(struct strait_stream *s, strait_tensor x, int64_t cols,
                                    strait_cuda_largest *out);
