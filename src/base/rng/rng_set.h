/* rng_set.h - drawing many random numbers at once, compiled per instruction set.
 *
 * rng_set.c is compiled once per instruction set, which STRAIT_ISA names. Everything here is
 * static, so that the linker cannot mix code of a newer set into an older one. All sets give the
 * same bits: they only add, multiply, divide, take square roots and convert, each rounded by IEEE
 * 754, and the compiler may not fuse operations. */
#pragma once

#include "base/rng/rng.h"

enum {
    STRAIT_RNG_GROUPS = 16,                  // counters drawn in parallel
    STRAIT_RNG_BLOCK = 4 * STRAIT_RNG_GROUPS // numbers that they give
};

struct strait_rng_set {
    const char *name;
    int (*is_supported)(void); // whether this processor supports it
    /* Writes n_blocks * STRAIT_RNG_BLOCK normal numbers, four per counter, from counter `first` on.
     */
    void (*normals)(strait_rng rng, uint64_t first, float *out, size_t n_blocks);
};

/* All sets, slowest first, terminated by one without a name. The first is always supported. */
extern const struct strait_rng_set strait_rng_sets[];

/* Philox for the n <= STRAIT_RNG_GROUPS counters from `first` on; outputs are grouped by word. */
static inline void strait_rng_groups(strait_rng rng, uint64_t first, uint32_t n,
                                     uint32_t out[4][STRAIT_RNG_GROUPS]) {
    uint32_t key[2] = {(uint32_t)rng.seed, (uint32_t)(rng.seed >> 32)};
    for (uint32_t g = 0; g < n; g++) {
        out[0][g] = (uint32_t)(first + g);
        out[1][g] = (uint32_t)((first + g) >> 32);
        out[2][g] = (uint32_t)rng.stream;
        out[3][g] = (uint32_t)(rng.stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (uint32_t g = 0; g < n; g++) {
            const uint32_t x1 = out[1][g], x3 = out[3][g];
            const uint64_t a = (uint64_t)0xD2511F53u * out[0][g];
            const uint64_t b = (uint64_t)0xCD9E8D57u * out[2][g];
            out[0][g] = (uint32_t)(b >> 32) ^ x1 ^ key[0];
            out[1][g] = (uint32_t)b;
            out[2][g] = (uint32_t)(a >> 32) ^ x3 ^ key[1];
            out[3][g] = (uint32_t)a;
        }
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}
