/* attention_value.cuh - loads and stores of single values of either type, for kernels that support
 * any head width. */
#pragma once

#include "backend/cuda/vector.cuh"

template <typename T> __device__ __forceinline__ float value_at(const T *from) {
    float v[1];
    take<T, 1>(v, from);
    return v[0];
}

template <typename T> __device__ __forceinline__ void put_value(T *to, float x) {
    const float v[1] = {x};
    put<T, 1>(to, v);
}
