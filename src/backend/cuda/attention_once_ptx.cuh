/* attention_once_ptx.cuh - the instructions of sm_90a that k_attention_once.cu needs beyond those
 * of products. */
#pragma once

#include <stdint.h>

/* A barrier in shared memory that `n` arrivals complete; phases alternate between parities 0 and 1.
 */
__device__ __forceinline__ void phase_init(uint32_t at, uint32_t n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory");
}

__device__ __forceinline__ void phase_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Blocks until the phase of this parity is complete. */
__device__ __forceinline__ void phase_wait(uint32_t at, uint32_t parity) {
    uint32_t is_complete;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_complete)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!is_complete);
}

/* A barrier of N threads of the block; number 0 is that of __syncthreads. */
template <int N> __device__ __forceinline__ void meet_some(int number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(N) : "memory");
}

/* All warps of a group give back, or take, registers until each thread has N. */
template <int N> __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Stores four 8x8 matrices of bf16; lane l passes the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t from[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}

__device__ __forceinline__ void store_ints(uint32_t at, const int from[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
}

__device__ __forceinline__ float shared_float(uint32_t at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
    return v;
}

/* Starts to add `bytes` of integers from shared memory to memory, as one group of copies. */
__device__ __forceinline__ void add_ints(int *to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

/* Blocks until all that this thread started to add has been read; and added. */
__device__ __forceinline__ void adds_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void adds_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
