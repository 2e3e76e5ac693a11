#include "model/rope.h"

#include <math.h>

static const double half_base = 1024.0;

/* Angle per position of pair i of n_pairs. */
static double frequency(const strait_shape *shape, int i, int n_pairs) {
    if (shape->rope == STRAIT_ROPE_FULL)
        return pow((double)shape->rope_theta, -(double)i / n_pairs);
    const int n_turning = n_pairs / 2;
    if (i >= n_turning) return 0.0;
    return n_turning == 1 ? 1.0 : pow(half_base, -(double)i / (n_turning - 1));
}

void strait_rope_tables(const strait_shape *shape, float *cos_table, float *sin_table) {
    const int n_pairs = shape->head_dim / 2;
    for (int i = 0; i < n_pairs; i++) {
        const double turn = frequency(shape, i, n_pairs);
        for (int64_t position = 0; position < shape->context; position++) {
            cos_table[position * n_pairs + i] = (float)cos(turn * (double)position);
            sin_table[position * n_pairs + i] = (float)sin(turn * (double)position);
        }
    }
}
