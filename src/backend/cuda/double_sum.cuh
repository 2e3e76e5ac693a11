/* double_sum.cuh - sums in double precision, for totals that must not lose small addends. */
#pragma once

#include <stdint.h>

/* The sum over a block of whole warps, in every thread, in an order fixed by the block size.
 * `shared` is 32 doubles of shared memory that nothing else uses between this call and the next
 * barrier. */
__device__ __forceinline__ double block_sum(double value, double *shared) {
    const int n_warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (lane == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < n_warps ? shared[lane] : 0.0;
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    __syncthreads();
    return value;
}
