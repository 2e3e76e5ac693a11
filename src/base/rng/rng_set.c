/* rng_set.c - normal numbers by Box-Muller, with our own logarithm, sine and cosine.
 *
 * Those of the C library differ between machines in the last bit and are scalar. These are minimax
 * polynomials in double precision (relative error below 1e-13), so that nearly every result is the
 * float nearest to the exact value. Loops run over arrays of one length with 64-bit lanes, which
 * compilers vectorise for any vector width. */
#include "base/rng/rng_set.h"

#include <math.h>
#include <string.h>

#define JOIN(name, isa)   strait_rng_##name##_##isa
#define EXPAND(name, isa) JOIN(name, isa)
#define ISA(name)         EXPAND(name, STRAIT_ISA)

enum {
    GROUPS = STRAIT_RNG_GROUPS
};

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* `whole` - `less` as a double, exactly, for whole < 2^52. Only the newest instruction sets convert
 * 64-bit integers, so this works on the bits. */
static inline double minus(uint64_t whole, double less) {
    return of_bits(whole | bits_of(0x1p52)) - (0x1p52 + less);
}

/* sqrt(-2 ln u), u = (word + 1) / 2^32, which is never 0.
 *
 * word + 1 = 2^e m, m from sqrt(1/2) to sqrt(2); s = (m - 1) / (m + 1), ln m = 2 artanh s. */
static inline double radius_of(uint64_t word) {
    const uint64_t half_root = 0x3fe6a09e667f3bcdu; // sqrt(1/2)
    const uint64_t bits = bits_of(minus(word, -1.0)) - half_root;
    const double e = minus(bits >> 52, 32.0);
    const double m = of_bits((bits & 0xfffffffffffffu) + half_root);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0x1.9114dcc948f8ap-3;
    p = p * z + 0x1.c62b20043ae4fp-3;
    p = p * z + 0x1.249411cea26b1p-2;
    p = p * z + 0x1.999996a98e059p-2;
    p = p * z + 0x1.555555561e2d3p-1;
    const double ln = e * 0x1.62e42fefa39efp-1 + (s * 2.0 + s * z * p);
    return sqrt(ln * -2.0);
}

/* The angle 2 pi word / 2^32 as quarter turns and a remainder of at most an eighth of a turn. */
struct direction {
    double cos, sin;
};

static inline struct direction direction_of(uint64_t word) {
    const uint64_t shifted = word + (1u << 29), quarters = shifted >> 30;
    const double x = minus(shifted & 0x3fffffffu, 0x1p29) * 0x1.921fb54442d18p-30;
    const double y = x * x;
    double s = -0x1.a967171155c37p-26, c = -0x1.23d81ac41b389p-22;
    s = s * y + 0x1.71d77d8a5af19p-19;
    c = c * y + 0x1.a00f120da1fe1p-16;
    s = s * y - 0x1.a019f95b9e54bp-13;
    c = c * y - 0x1.6c16b401493adp-10;
    s = s * y + 0x1.1111110ca3438p-7;
    c = c * y + 0x1.55555546f5a7cp-5;
    s = s * y - 0x1.5555555552404p-3;
    c = c * y - 0x1.ffffffffebfeap-2;
    const uint64_t sine = bits_of(x + x * y * s), cosine = bits_of(1.0 + y * c);
    const uint64_t swaps = (sine ^ cosine) & (0 - (quarters & 1)); // an odd quarter swaps them
    return (struct direction){of_bits(cosine ^ swaps ^ ((quarters + 1) & 2) << 62),
                              of_bits(sine ^ swaps ^ (quarters & 2) << 62)};
}

static inline void pair_of(uint32_t radius_word, uint32_t angle_word, float *x, float *y) {
    const double radius = radius_of(radius_word);
    const struct direction to = direction_of(angle_word);
    *x = (float)(radius * to.cos);
    *y = (float)(radius * to.sin);
}

/* Two pairs per iteration: neither waits for the other's division and square root. */
static inline void normals_of(uint32_t words[4][GROUPS], float out[4][GROUPS]) {
    for (int g = 0; g < GROUPS; g++) {
        pair_of(words[0][g], words[1][g], &out[0][g], &out[1][g]);
        pair_of(words[2][g], words[3][g], &out[2][g], &out[3][g]);
    }
}

void ISA(normals)(strait_rng rng, uint64_t first, float *out, size_t n_blocks);

void ISA(normals)(strait_rng rng, uint64_t first, float *out, size_t n_blocks) {
    for (size_t block = 0; block < n_blocks; block++) {
        uint32_t words[4][GROUPS];
        float numbers[4][GROUPS];
        strait_rng_groups(rng, first + block * GROUPS, GROUPS, words);
        normals_of(words, numbers);
        for (int g = 0; g < GROUPS; g++)
            for (int i = 0; i < 4; i++)
                out[block * STRAIT_RNG_BLOCK + (size_t)(g * 4 + i)] = numbers[i][g];
    }
}
