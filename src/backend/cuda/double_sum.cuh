/* double_sum.cuh - what must not lose small parts is added up in double precision. */
#pragma once

#include <stdint.h>

/* The sum over a block of whole warps, in every thread and in an order that the size of the block
 * fixes. `room` is 32 doubles of shared memory that no one else uses between this call and the next
 * barrier. */
__device__ __forceinline__ double block_sum(double value, double *capacity) {
    const int n_warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    for (int by = 16; by > 0; by /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, by);
    if (lane == 0) capacity[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < n_warps ? capacity[lane] : 0.0;
    for (int by = 16; by > 0; by /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, by);
    __syncthreads();
    return value;
}
