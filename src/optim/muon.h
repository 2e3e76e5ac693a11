/* muon.h - momentum whose singular values are all brought near 1.
 *
 *   m = b m + (1 - b) g             g: the gradient, clipped
 *   u = N(b m + (1 - b) g)          a look ahead, as in Nesterov's method
 *   w = (1 - rate decay) w - rate sqrt(max(1, rows / cols)) u
 *
 * N(X): X / (|X| + 1e-7), then eight times X = 2 X + (-1.5 A + 0.5 A A) X with A = X X^T, which
 * takes each singular value s to 2 s - 1.5 s^3 + 0.5 s^5: 1 stays, small ones double. A tall X is
 * handled as its transpose, so that A has the smaller side. Zero stays zero. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"
#include "tensor/tensor.h"

#include <stdint.h>

/* Scratch on the device, shared by all matrices of an optimizer. */
struct strait_muon {
    strait_tensor x, y;   // as large as the largest matrix
    strait_tensor a, b;   // square, of the largest smaller side
    strait_tensor total;  // [1 x 1]
    strait_tensor one;    // [1 x 1]
    int64_t n_max, k_max; // values of the largest matrix; largest smaller side
};

/* Makes room for a matrix of this shape; then plan, once, adds the scratch to the slab. With no
 * matrix reserved there is no scratch. `muon` must stay put until the slab is committed. */
void strait_muon_reserve(struct strait_muon *muon, int64_t rows, int64_t cols);
strait_err strait_muon_plan(struct strait_muon *muon, struct strait_slab *slab);

/* b at `step`, from 1: from `start` in equal steps to `momentum`, reached after `warmup` steps. */
float strait_muon_momentum(float start, float momentum, int64_t warmup, int64_t step);

/* x = N(x), for an x that is not scratch. */
strait_err strait_muon_orthogonalise(struct strait_muon *muon, struct strait_stream *s,
                                     strait_tensor x);

typedef struct strait_muon_params {
    float rate, decay, momentum;
} strait_muon_params;

/* grad is read as grad * scale[0]. */
strait_err strait_muon_step(struct strait_muon *muon, struct strait_stream *s, strait_tensor weight,
                            strait_tensor m, strait_tensor grad, strait_tensor scale,
                            strait_muon_params how);
