/* rng_sets_one.c - the table of instruction sets on machines that have only one. */
#include "base/rng/rng_set.h"

void strait_rng_normals_plain(strait_rng rng, uint64_t first, float *out, size_t n_blocks);

/* The plain version is compiled C without intrinsics. */
static int always(void) {
    return 1;
}

const struct strait_rng_set strait_rng_sets[] = {
    {.name = "plain", .is_supported = always, .normals = strait_rng_normals_plain},
    {0},
};
