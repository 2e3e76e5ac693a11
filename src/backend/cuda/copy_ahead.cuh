/* copy_ahead.cuh - copies from global to shared memory that run ahead of the computation, so that
 * loads are in flight at all times without registers for them.
 *
 * A thread reads only what it has copied itself, so its own wait is enough: no barrier is needed.
 * Devices older than sm_80 copy at once. */
#pragma once

#include "backend/cuda/vector.cuh"

/* Starts a copy of W values. 2 bytes are fewer than the instruction can copy. */
template <typename T, int W>
__device__ __forceinline__ void copy_ahead(lanes<T, W> *to, const T *from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    constexpr int BYTES = (int)sizeof(lanes<T, W>);
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else if constexpr (BYTES >= 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES)
                     : "memory");
    else
        *to = load<T, W>(from);
#else
    *to = load<T, W>(from);
#endif
}

/* Ends a group of copies, which may be empty. */
__device__ __forceinline__ void close_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Blocks until at most the last N groups of this thread are under way. */
template <int N> __device__ __forceinline__ void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
