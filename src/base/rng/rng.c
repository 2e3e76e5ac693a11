#include "base/rng/rng.h"

#include "base/rng/rng_set.h"

#include <string.h>

enum {
    GROUPS = STRAIT_RNG_GROUPS,
    BLOCK = STRAIT_RNG_BLOCK
};

/* Names instead of numbers: adding a stream never shifts the numbers of the others. */
uint64_t strait_rng_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

void strait_rng_draw(strait_rng rng, uint64_t counter, uint32_t out[4]) {
    uint32_t words[4][GROUPS];
    strait_rng_groups(rng, counter, 1, words);
    for (int i = 0; i < 4; i++)
        out[i] = words[i][0];
}

void strait_rng_words(strait_rng rng, uint64_t first, uint32_t *out, size_t n) {
    uint32_t words[4][GROUPS];
    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / 4;
        strait_rng_groups(rng, group, GROUPS, words);
        for (uint64_t at = first + i - group * 4; at < 4 * (uint64_t)GROUPS && i < n; at++, i++)
            out[i] = words[at % 4][at / 4];
    }
}

uint64_t strait_rng_u64(strait_rng rng, uint64_t counter) {
    uint32_t bits[4];
    strait_rng_draw(rng, counter, bits);
    return (uint64_t)bits[0] | (uint64_t)bits[1] << 32;
}

/* 24 bits are what a float holds exactly, so the result is below 1. */
float strait_rng_uniform(strait_rng rng, uint64_t counter) {
    return (float)(strait_rng_u64(rng, counter) >> 40) * 0x1p-24f;
}

/* The newest instruction set that this processor has. Not cached: the check tests a few bits. */
static const struct strait_rng_set *best_set(void) {
    const struct strait_rng_set *best = strait_rng_sets;
    for (const struct strait_rng_set *set = best; set->name != NULL; set++)
        if (set->is_supported()) best = set;
    return best;
}

/* Any range gives the same numbers as a part of a larger one, so that stages can draw their share.
 */
void strait_rng_normals(strait_rng rng, uint64_t first, float *out, size_t n) {
    const struct strait_rng_set *set = best_set();
    float part[BLOCK]; // a partial block at the start or the end
    size_t done = 0;
    if (first % 4 != 0 || n < BLOCK) {
        const size_t from = (size_t)(first % 4), left = BLOCK - from;
        done = n < left ? n : left;
        set->normals(rng, first / 4, part, 1);
        memcpy(out, part + from, done * sizeof *out);
    }
    const size_t n_blocks = (n - done) / BLOCK;
    set->normals(rng, (first + done) / 4, out + done, n_blocks);
    done += n_blocks * BLOCK;
    if (done == n) return;
    set->normals(rng, (first + done) / 4, part, 1);
    memcpy(out + done, part, (n - done) * sizeof *out);
}
