/* attention_group_ptx.cuh - the instructions of sm_90a that attention_group.cuh needs. */
#pragma once

#include <stdint.h>

/* The first word of a tile's matrix descriptor: its address, and the stride of 1024 bytes between
 * groups of eight rows, both in units of 16 bytes. Tiles that start n bytes later have n / 16 more:
 * made from addresses each, words took more instructions than what they are for. */
__device__ __forceinline__ uint32_t tile_word(uint32_t at) {
    return (at >> 4) + (64u << 16);
}

/* The descriptor: the stride again, and the 128-byte swizzle. */
__device__ __forceinline__ uint64_t tile_name(uint32_t word) {
    return (uint64_t)word | (uint64_t)(64u | 1u << 30) << 32;
}

#define ACCUMULATOR                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define ACCUMULATOR_ROW(params, n) \
    params(c[n][0]), params(c[n][1]), params(c[n][2]), params(c[n][3])
#define ACCUMULATOR_ROWS(params)                                                            \
    ACCUMULATOR_ROW(params, 0), ACCUMULATOR_ROW(params, 1), ACCUMULATOR_ROW(params, 2),     \
        ACCUMULATOR_ROW(params, 3), ACCUMULATOR_ROW(params, 4), ACCUMULATOR_ROW(params, 5), \
        ACCUMULATOR_ROW(params, 6), ACCUMULATOR_ROW(params, 7)

/* The instruction with its operands after the accumulator; `adds` is an immediate. */
#define GROUP_PRODUCT(adds, operands)                 \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR operands ";\n}\n"

/* c [64 x 64] = a [64 x 16] b, or (ADDS) c += a b; b is 16 columns of 64 rows of the tile,
 * transposed, or (IS_DOWN) 16 of its rows. All four warps. */
template <bool IS_DOWN, bool ADDS>
__device__ __forceinline__ void group_multiply(float c[8][4], const uint32_t a[4], uint64_t tile) {
    if constexpr (ADDS)
        asm volatile(GROUP_PRODUCT("1", "{%32, %33, %34, %35}, %36, p, 1, 1, %37")
                     : ACCUMULATOR_ROWS("+f")
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile), "n"(IS_DOWN));
    else
        asm volatile(GROUP_PRODUCT("0", "{%32, %33, %34, %35}, %36, p, 1, 1, %37")
                     : ACCUMULATOR_ROWS("=f")
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile), "n"(IS_DOWN));
}

/* The same with a as 16 columns of a tile, or (ARE_DOWN) a^T b of 16 rows of both tiles. */
template <bool ADDS, bool ARE_DOWN = false>
__device__ __forceinline__ void group_multiply_tiles(float c[8][4], uint64_t a, uint64_t tile) {
    if constexpr (ADDS)
        asm volatile(GROUP_PRODUCT("1", "%32, %33, p, 1, 1, %34, %34")
                     : ACCUMULATOR_ROWS("+f")
                     : "l"(a), "l"(tile), "n"(ARE_DOWN));
    else
        asm volatile(GROUP_PRODUCT("0", "%32, %33, p, 1, 1, %34, %34")
                     : ACCUMULATOR_ROWS("=f")
                     : "l"(a), "l"(tile), "n"(ARE_DOWN));
}

__device__ __forceinline__ void group_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* A compiler barrier for these registers: no instruction that computes a factor or a sum may move
 * past this point. */
template <int N> __device__ __forceinline__ void settle(float (&values)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(values[n][i])::"memory");
}

template <int N> __device__ __forceinline__ void settle(uint32_t (&values)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+r"(values[n][i])::"memory");
}

/* Makes registers that other instructions wrote visible to the products that follow
 * (wgmma.fence). */
__device__ __forceinline__ void fence_registers() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Blocks until at most PENDING groups of work are unfinished; acc belongs to a finished one. */
template <int PENDING, int PANELS = 1>
__device__ __forceinline__ void group_wait(float acc[8 * PANELS][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
    for (int n = 0; n < 8 * PANELS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile(""
                         : "+f"(acc[n][i])::"memory"); // keeps the compiler from reading it earlier
}

/* Blocks until no work is unfinished. */
__device__ __forceinline__ void group_wait_all() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Makes shared memory that this thread wrote or copied visible to products, after a barrier. */
__device__ __forceinline__ void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
