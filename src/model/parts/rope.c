#include "model/parts/rope.h"

#include <math.h>

/* Of STRAIT_ROPE_HALF; rope_theta applies to STRAIT_ROPE_FULL only. */
static const double half_base = 1024.0;

/* Angle per position of pair i of n_pairs. With STRAIT_ROPE_HALF the second half of the pairs does
 * not rotate, and so carries no position. */
static double frequency(const strait_shape *shape, int i, int n_pairs) {
    if (shape->rope == STRAIT_ROPE_FULL)
        return pow((double)shape->rope_theta, -(double)i / n_pairs);
    const int n_rotating = n_pairs / 2;
    if (i >= n_rotating) return 0.0;
    return n_rotating == 1 ? 1.0 : pow(half_base, -(double)i / (n_rotating - 1));
}

void strait_rope_tables(const strait_shape *shape, float *cos_table, float *sin_table) {
    const int n_pairs = shape->head_dim / 2;
    for (int i = 0; i < n_pairs; i++) {
        const double angle = frequency(shape, i, n_pairs);
        for (int64_t position = 0; position < shape->context; position++) {
            cos_table[position * n_pairs + i] = (float)cos(angle * (double)position);
            sin_table[position * n_pairs + i] = (float)sin(angle * (double)position);
        }
    }
}
