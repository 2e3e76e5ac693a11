/* batch.cuh - tensors of one launch. */
#pragma once

#include <stdint.h>

/* Whose block this is, where tensor i begins with block first[i]. */
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
