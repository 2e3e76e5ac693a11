/* tensor_batch.cuh - many tensors in one launch: which of them a block works on. */
#pragma once

#include <stdint.h>

/* The tensor of this block, where tensor i starts at block first[i]: a binary search. */
__device__ __forceinline__ int tensor_of_block(const int64_t *first, int count) {
    int low = 0, high = count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (first[middle] <= (int64_t)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}
