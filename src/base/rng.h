/* rng.h - random numbers as a function of (seed, stream, counter).
 *
 * Nothing is remembered between calls: the same three numbers give the same bits on every machine,
 * whatever was drawn before and by which thread. Philox 4x32, ten rounds. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct strait_rng {
    uint64_t seed;
    uint64_t stream; // what the numbers are for: a parameter, the sampler, a boundary
} strait_rng;

/* A stream number from a name, so that each use has its own. */
uint64_t strait_rng_stream(const char *name);

/* Four independent 32-bit numbers. */
void strait_rng_draw(strait_rng rng, uint64_t counter, uint32_t out[4]);

/* out[i] is word (first + i) % 4 of what counter (first + i) / 4 draws. */
void strait_rng_words(strait_rng rng, uint64_t first, uint32_t *out, size_t n);

uint64_t strait_rng_u64(strait_rng rng, uint64_t counter);
float strait_rng_uniform(strait_rng rng, uint64_t counter); // in [0, 1)

/* Fills out[0..n) with normal numbers; out[i] depends on (rng, first + i) only. */
void strait_rng_normals(strait_rng rng, uint64_t first, float *out, size_t n);
