/* k_matmul.cu - matrix products for shapes and addresses that cublasLt does not support. */
#include "backend/cuda/k_matmul.h"
#include "backend/cuda/vector.cuh"

constexpr int TILE = STRAIT_CUDA_MATMUL_TILE;

/* Single values: these shapes and addresses do not allow wide accesses. */
template <typename T> __device__ __forceinline__ float value_at(const void *from, int64_t i) {
    float value[1];
    take<T, 1>(value, (const T *)from + i);
    return value[0];
}

/* One thread per value of y, one block per tile; tiles of both factors go through shared memory.
 * The extra column avoids bank conflicts. */
template <typename T, typename Y>
__device__ __forceinline__ void matmul(const strait_cuda_matmul_args &g) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    const int64_t tiles = (g.n + TILE - 1) / TILE;
    const int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;
    const int64_t row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
    const int64_t row = row0 + ty, col = col0 + tx;
    float sum = 0.0f;
    for (int64_t p = 0; p < g.k; p += TILE) {
        left[ty][tx] = row < g.m && p + tx < g.k
                           ? value_at<T>(g.a, row * g.a_row + (p + tx) * g.a_col)
                           : 0.0f;
        right[ty][tx] = col < g.n && p + ty < g.k
                            ? value_at<T>(g.b, (p + ty) * g.b_row + col * g.b_col)
                            : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++)
            sum += left[ty][i] * right[i][tx];
        __syncthreads();
    }
    /* Only here, because all threads of a block must reach the barriers above. */
    if (row >= g.m || col >= g.n) return;
    const int64_t at = row * g.n + col;
    float value[1] = {g.alpha * sum};
    if (g.beta != 0.0f) value[0] += g.beta * value_at<Y>(g.y, at);
    put<Y, 1>((Y *)g.y + at, value);
}

extern "C" __global__ void __launch_bounds__(256) matmul_f32_f32(strait_cuda_matmul_args g) {
    matmul<float, float>(g);
}

extern "C" __global__ void __launch_bounds__(256) matmul_bf16_f32(strait_cuda_matmul_args g) {
    matmul<bf16, float>(g);
}

extern "C" __global__ void __launch_bounds__(256) matmul_bf16_bf16(strait_cuda_matmul_args g) {
    matmul<bf16, bf16>(g);
}
