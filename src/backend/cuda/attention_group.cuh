/* attention_group.cuh - products by a warp group (four warps) with the tensor cores of sm_90a.
 *
 * A group owns 64 rows, 16 per warp. Tiles are 64 rows of 64 values in shared memory
 * (attention_tile.cuh), each at a multiple of 1024 bytes; their swizzle is the one that the
 * instruction implements. A head of 128 is two panels of such tiles. An accumulator [64 x 64] is
 * float[8][4] per lane, laid out as in attention_tile.cuh.
 *
 * Products are asynchronous and run in order. Until a wait covers them, the registers they use must
 * not be touched, and fence_registers() must come between other uses of such registers and a
 * product. */
#pragma once

#include "backend/cuda/attention_group_ptx.cuh"
#include "backend/cuda/attention_tile.cuh"

constexpr int GROUP = 64; // rows, and values of a panel
constexpr uint32_t GROUP_TILE = GROUP * GROUP * 2;

/* 64 columns of a warp's 16 rows, in the layout of left factors. */
struct group_rows {
    uint32_t part[GROUP / 16][4];
};

/* Shares of 16 rows, rounded to bf16, in the layout of left factors. */
__device__ __forceinline__ void round_rows(group_rows &out, const float acc[8][4]) {
#pragma unroll
    for (int k = 0; k < GROUP / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &acc[2 * k + i / 2][i % 2 * 2];
            out.part[k][i] = bf16_pair(pair[0], pair[1]);
        }
    settle(out.part);
}

/* The left factor of a product with rows of tiles: a group's 64 rows of PANELS panels. It stays in
 * shared memory. In registers it would live across other products, and the compiler may give those
 * the same registers: a product that starts before they are restored would read the wrong factor.
 */
template <int PANELS> struct group_own {
    uint32_t word, panel_bytes;

    /* Tiles start at `tile`, panel_bytes apart; the group's rows start at `first`. */
    __device__ __forceinline__ void init(uint32_t tile, uint32_t bytes, int first) {
        word = tile_word(tile + tile_bytes<GROUP>(first));
        panel_bytes = bytes;
    }
    /* The contribution of the i-th 16 columns to acc = own B^T. */
    template <bool ADDS>
    __device__ __forceinline__ void multiply(float acc[8][4], uint32_t tile, int i) const {
        const uint32_t panel = (uint32_t)i / 4, column = (uint32_t)i % 4 * 32;
        group_multiply_tiles<ADDS>(acc, tile_name(word + (panel * panel_bytes + column) / 16),
                                   tile_name(tile + (panel * GROUP_TILE + column) / 16));
    }
    /* acc = own B^T, where B is the rows of the tile's panels. Committed as one group of work. */
    __device__ __forceinline__ void start(float acc[8][4], uint32_t tile) const {
        const uint32_t other = tile_word(tile);
        multiply<false>(acc, other, 0);
#pragma unroll
        for (int i = 1; i < PANELS * 4; i++)
            multiply<true>(acc, other, i);
        group_commit();
    }
};

/* acc += shares B, or acc = shares B if not ADDS, where B is the rows of the tile's panels. */
template <int PANELS, bool ADDS = true>
__device__ __forceinline__ void start_sum(float acc[8 * PANELS][4], const group_rows &shares,
                                          uint32_t tile) {
    const uint32_t word = tile_word(tile);
#pragma unroll
    for (int p = 0; p < PANELS; p++)
#pragma unroll
        for (int k = 0; k < GROUP / 16; k++) {
            const uint64_t name = tile_name(
                word + ((uint32_t)p * GROUP_TILE + (uint32_t)k * 16 * 128) / 16);
            if (ADDS || k > 0)
                group_multiply<true, true>(acc + 8 * p, shares.part[k], name);
            else
                group_multiply<true, false>(acc + 8 * p, shares.part[k], name);
        }
    group_commit();
}
