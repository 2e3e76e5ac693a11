/* basis.h - orthonormal columns, made on the host in double precision. For what is rare: frames
 * drawn from a seed, and a shared basis that turns. */
#pragma once

#include "base/error.h"
#include "base/rng.h"

/* Makes the columns of q [d x k], row-major, orthonormal from the first to the last. STRAIT_EDATA
 * when a column depends on those before it or is not finite; q is then as it was. Allocates. */
strait_err strait_basis_orthonormalise(double *q, int64_t d, int64_t k);

/* k <= d orthonormal columns [d x k], uniform over all such, from `rng` alone. */
strait_err strait_basis_draw(strait_rng rng, int64_t d, int64_t k, float *out);
