/* newton_schulz.h - brings all singular values of a matrix near 1, by matrix products alone.
 *
 * N(X): X / (|X| + 1e-7), then eight times X = 2 X + (-1.5 A + 0.5 A A) X with A = X X^T, which
 * takes each singular value s to 2 s - 1.5 s^3 + 0.5 s^5: 1 is a fixed point, small values double.
 * A tall X is handled as its transpose, so that A has the smaller side. N(0) is 0. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "tensor/tensor.h"

#include <stdint.h>

/* Scratch on the device, shared by all matrices. Zeroed before the first reserve. */
struct strait_newton_schulz {
    strait_tensor y;      // as large as the largest matrix
    strait_tensor a, b;   // square, with the largest of the smaller sides
    strait_tensor total;  // [1 x 1], sum of squares
    int64_t n_max, k_max; // values of the largest matrix; largest of the smaller sides
};

/* Makes the scratch large enough for a matrix of this shape. After the last reserve, call plan once
 * to add the scratch to the slab; `ns` must not move until the slab is committed. */
void strait_newton_schulz_reserve(struct strait_newton_schulz *ns, int64_t rows, int64_t cols);
strait_err strait_newton_schulz_plan(struct strait_newton_schulz *ns, struct strait_slab *slab);

/* x = N(x), f32, of a reserved shape; x is not part of the scratch. */
strait_err strait_newton_schulz(struct strait_newton_schulz *ns, struct strait_stream *s,
                                strait_tensor x);
