/* rng_sets_x86.c - the table of instruction sets on x86-64. */
#include "base/rng/rng_set.h"
#include "base/x86.h"

void strait_rng_normals_sse2(strait_rng rng, uint64_t first, float *out, size_t n_blocks);
void strait_rng_normals_avx2(strait_rng rng, uint64_t first, float *out, size_t n_blocks);
void strait_rng_normals_avx512(strait_rng rng, uint64_t first, float *out, size_t n_blocks);

/* From the oldest to the newest: the last supported one is used. */
const struct strait_rng_set strait_rng_sets[] = {
    {.name = "sse2", .is_supported = strait_x86_always, .normals = strait_rng_normals_sse2},
    {.name = "avx2", .is_supported = strait_x86_has_avx2, .normals = strait_rng_normals_avx2},
    {.name = "avx512", .is_supported = strait_x86_has_avx512, .normals = strait_rng_normals_avx512},
    {0},
};
