/* basis.h - orthonormal columns, computed on the host in double precision. Meant for rare work:
 * encoder bases drawn from a seed, and updates of a shared basis. */
#pragma once

#include "base/error.h"
#include "base/rng/rng.h"

/* Makes the columns of q [d x k], row-major, orthonormal from the first to the last. STRAIT_EDATA
 * when a column depends on earlier ones or is non-finite; q is then unchanged. Allocates. */
strait_err strait_basis_orthonormalise(double *q, int64_t d, int64_t k);

/* Draws k <= d orthonormal columns [d x k], uniformly over all such bases. The result depends on
 * `rng` alone, so that two stages with one seed get the same bits without sending them. */
strait_err strait_basis_draw(strait_rng rng, int64_t d, int64_t k, float *out);

/* Angles between the spans of two bases [d x k] with orthonormal columns, in radians: the largest
 * principal angle, and the root mean square of the sines of all k, as an angle. Allocates. */
strait_err strait_basis_angles(const float *a, const float *b, int64_t d, int64_t k,
                               double *largest, double *mean);
