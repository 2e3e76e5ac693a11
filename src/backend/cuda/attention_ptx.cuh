/* attention_ptx.cuh - instructions of sm_80 and later without a C++ equivalent.
 *
 * Shared memory is passed by its 32-bit address, as the instructions expect. */
#pragma once

#include <stdint.h>

/* The address of the block's dynamic shared memory. */
__device__ __forceinline__ uint32_t shared_base() {
    extern __shared__ __align__(1024) unsigned char attention_shared[];
    return (uint32_t)__cvta_generic_to_shared(attention_shared);
}

/* Starts an asynchronous copy of 16 bytes to shared memory; zeros unless is_valid. */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool is_valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_valid ? 16 : 0));
}

__device__ __forceinline__ void copy4(uint32_t to, const void *from, bool is_valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(is_valid ? 4 : 0));
}

/* Blocks until this thread's copies have arrived. */
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ float2 shared_pair(uint32_t at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

/* Loads four 8x8 matrices of bf16; lane l passes the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void load_matrices(uint32_t out[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t out[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

/* c [16 x 8] += a [16 x 16] b [16 x 8] */
__device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], uint32_t b0,
                                         uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x; subnormal results become 0. */
__device__ __forceinline__ float power_of_2(float x) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}
