#include "model/parts/rope.h"

#include <math.h>

/* Of STRAIT_ROPE_HALF; rope_theta applies to STRAIT_ROPE_FULL only. */
static const double half_base = 1024.0;

/* Llama 3.1's scaling: pairs that turn at most `low` times within the original context are slowed
 * down by the factor, those that turn at least `high` times keep their angle, and between the two
 * the angle is interpolated. */
static double scaled(const strait_shape *shape, double angle) {
    const double slow = angle / (double)shape->rope_factor;
    if (shape->rope_scaling == STRAIT_ROPE_UNSCALED) return angle;
    if (shape->rope_scaling == STRAIT_ROPE_LINEAR) return slow;
    const double low = (double)shape->rope_low, high = (double)shape->rope_high;
    const double turns = (double)shape->rope_original * angle / (2.0 * acos(-1.0));
    if (turns <= low) return slow;
    if (turns >= high) return angle;
    const double share = (turns - low) / (high - low);
    return (1.0 - share) * slow + share * angle;
}

/* Angle per position of pair i of n_pairs. With STRAIT_ROPE_HALF the second half of the pairs does
 * not rotate, and so carries no position. */
static double frequency(const strait_shape *shape, int i, int n_pairs) {
    if (shape->rope == STRAIT_ROPE_FULL)
        return scaled(shape, pow((double)shape->rope_theta, -(double)i / n_pairs));
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
