/* newton_schulz.h - brings all singular values of matrices near 1, by matrix products alone.
 *
 * N(X): X / (|X| + 1e-7), then eight times X = 2 X + (-1.5 A + 0.5 A A) X with A = X X^T, which
 * takes each singular value s to 2 s - 1.5 s^3 + 0.5 s^5: 1 is a fixed point, small values double.
 * A tall X is handled as its transpose, so that A has the smaller side. N(0) is 0. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "tensor/tensor.h"

#include <stdint.h>

enum {
    STRAIT_NEWTON_SCHULZ_MOST = 64 // matrices at a time
};

/* Scratch on the device, shared by all matrices. Zeroed before the first reserve. */
struct strait_newton_schulz {
    strait_tensor y;      // as large as the largest group of matrices
    strait_tensor a, b;   // one square per matrix, with the smaller side
    strait_tensor totals; // [n x 1], sums of squares
    /* Values of the largest group, of its squares, and matrices of the most numerous one. */
    int64_t n_max, squares_max, count_max;
};

/* Makes the scratch large enough for n matrices of this shape at a time, n at most
 * STRAIT_NEWTON_SCHULZ_MOST. After the last reserve, call plan once to add the scratch to the slab;
 * `ns` must not move until the slab is committed. */
void strait_newton_schulz_reserve(struct strait_newton_schulz *ns, int64_t rows, int64_t cols,
                                  int n);
strait_err strait_newton_schulz_plan(struct strait_newton_schulz *ns, struct strait_slab *slab);

/* x = N(x) of each of n matrices, f32, which follow each other in the rows of x; as many of this
 * shape as were reserved, or fewer. x is not part of the scratch. The result of a matrix does not
 * depend on the others. */
strait_err strait_newton_schulz(struct strait_newton_schulz *ns, struct strait_stream *s,
                                strait_tensor x, int n);
