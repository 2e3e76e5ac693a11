/* rng.h - random numbers as a function of (seed, stream, counter).
 *
 * There is no state: the same three numbers give the same bits on every machine, whatever was drawn
 * before and by which thread. The generator is Philox 4x32 with ten rounds. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct strait_rng {
    uint64_t seed;
    uint64_t stream; // the purpose: a parameter, the sampler, a boundary
} strait_rng;

/* A stream number derived from a name, so that each use has its own stream. */
uint64_t strait_rng_stream(const char *name);

/* Four independent 32-bit numbers. */
void strait_rng_draw(strait_rng rng, uint64_t counter, uint32_t out[4]);

/* out[i] is word (first + i) % 4 of the four words that counter (first + i) / 4 gives. */
void strait_rng_words(strait_rng rng, uint64_t first, uint32_t *out, size_t n);

uint64_t strait_rng_u64(strait_rng rng, uint64_t counter);
float strait_rng_uniform(strait_rng rng, uint64_t counter); // in [0, 1)

/* Fills out[0..n) with standard normal numbers; out[i] depends only on (rng, first + i). */
void strait_rng_normals(strait_rng rng, uint64_t first, float *out, size_t n);
