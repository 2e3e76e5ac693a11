#include "base/rng.h"

#include <math.h>

enum {
    ROUNDS = 10,
    GROUPS = 16
};
static const double two_pi = 6.283185307179586;

uint64_t strait_rng_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* `n` counters from `first` on, side by side, so that a compiler can use vectors. */
static inline void draw_groups(strait_rng rng, uint64_t first, uint32_t n,
                               uint32_t out[4][GROUPS]) {
    uint32_t key[2] = {(uint32_t)rng.seed, (uint32_t)(rng.seed >> 32)};
    for (uint32_t g = 0; g < n; g++) {
        out[0][g] = (uint32_t)(first + g);
        out[1][g] = (uint32_t)((first + g) >> 32);
        out[2][g] = (uint32_t)rng.stream;
        out[3][g] = (uint32_t)(rng.stream >> 32);
    }
    for (int round = 0; round < ROUNDS; round++) {
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

void strait_rng_draw(strait_rng rng, uint64_t counter, uint32_t out[4]) {
    uint32_t words[4][GROUPS];
    draw_groups(rng, counter, 1, words);
    for (int i = 0; i < 4; i++)
        out[i] = words[i][0];
}

void strait_rng_words(strait_rng rng, uint64_t first, uint32_t *out, size_t n) {
    uint32_t words[4][GROUPS];
    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / 4;
        draw_groups(rng, group, GROUPS, words);
        for (uint64_t at = first + i - group * 4; at < 4 * (uint64_t)GROUPS && i < n; at++, i++)
            out[i] = words[at % 4][at / 4];
    }
}

uint64_t strait_rng_u64(strait_rng rng, uint64_t counter) {
    uint32_t bits[4];
    strait_rng_draw(rng, counter, bits);
    return (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
}

float strait_rng_uniform(strait_rng rng, uint64_t counter) {
    return (float)(strait_rng_u64(rng, counter) >> 40) * 0x1p-24f;
}

/* Box-Muller: one draw of four words gives the four numbers of a group. */
static void normal_group(strait_rng rng, uint64_t group, float out[4]) {
    uint32_t bits[4];
    strait_rng_draw(rng, group, bits);
    for (int pair = 0; pair < 4; pair += 2) {
        const double u = ((double)bits[pair] + 1.0) * 0x1p-32; // (0, 1]
        const double angle = two_pi * (double)bits[pair + 1] * 0x1p-32;
        const double radius = sqrt(-2.0 * log(u));
        out[pair] = (float)(radius * cos(angle));
        out[pair + 1] = (float)(radius * sin(angle));
    }
}

void strait_rng_normals(strait_rng rng, uint64_t first, float *out, size_t n) {
    float group[4];
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = first + i;
        if (i == 0 || at % 4 == 0) normal_group(rng, at / 4, group);
        out[i] = group[at % 4];
    }
}
