#include "base/rng.h"

#include <math.h>

enum {
    ROUNDS = 10
};
static const double TWO_PI = 6.283185307179586;

uint64_t strait_rng_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

void strait_rng_draw(strait_rng rng, uint64_t counter, uint32_t out[4]) {
    uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)rng.stream,
                     (uint32_t)(rng.stream >> 32)};
    uint32_t key[2] = {(uint32_t)rng.seed, (uint32_t)(rng.seed >> 32)};
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * x[0];
        const uint64_t b = (uint64_t)0xCD9E8D57u * x[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
        for (int i = 0; i < 4; i++)
            x[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = x[i];
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
        const double angle = TWO_PI * (double)bits[pair + 1] * 0x1p-32;
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
