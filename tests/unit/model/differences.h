/* differences.h - compares gradients with central differences of the loss. */
#pragma once

#include "tiny.h"

/* The loss at the current values of the parameters. */
typedef double (*differences_loss)(void *user);

static inline void differences_shift(strait_tensor value, const float *direction, float step) {
    float *values = value.data;
    for (int64_t i = 0; i < value.rows * value.cols; i++)
        values[i] += step * direction[i];
}

static inline double differences_slope(differences_loss loss, void *user, const strait_param *param,
                                       const float *direction, const float *kept, float step) {
    const size_t bytes = strait_tensor_bytes(param->value);
    differences_shift(param->value, direction, step);
    const double above = loss(user);
    memcpy(param->value.data, kept, bytes);
    differences_shift(param->value, direction, -step);
    const double below = loss(user);
    memcpy(param->value.data, kept, bytes);
    return (above - below) / (2.0 * (double)step);
}

/* Compares param->grad, the gradient of `loss`, with central differences along one direction: their
 * slopes differ by at most `tolerance` of the slope. */
static inline void check_differences_within(differences_loss loss, void *user,
                                            const strait_param *param, double tolerance) {
    enum {
        COUNT_MAX = 4096
    };
    static float direction[COUNT_MAX], kept[COUNT_MAX];
    const int64_t n = param->value.rows * param->value.cols;
    const float *grad = param->grad.data;
    assert_true(n <= COUNT_MAX);
    memcpy(kept, param->value.data, strait_tensor_bytes(param->value));
    /* The direction is the gradient plus some noise: the slope is large compared with the rounding
     * of the loss, and yet every element takes part. */
    strait_rng_normals((strait_rng){9, strait_rng_stream(param->name)}, 0, direction, (size_t)n);
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++)
        norm += (double)grad[i] * (double)grad[i];
    const double level = sqrt(norm / (double)n);
    assert_true(level > 0.0);
    double expected = 0.0;
    for (int64_t i = 0; i < n; i++) {
        direction[i] = (float)((double)grad[i] / level + 0.5 * (double)direction[i]);
        expected += (double)grad[i] * (double)direction[i];
    }
    /* Richardson extrapolation: two step sizes cancel the third-order error. The step changes the
     * loss by 0.02, or by less where the loss is too curved or has a kink nearby. */
    float step = (float)(0.02 / expected) < 0.02f ? (float)(0.02 / expected) : 0.02f;
    double found = 0.0;
    for (int i = 0; i < 3; i++) {
        const double coarse = differences_slope(loss, user, param, direction, kept, step);
        const double fine = differences_slope(loss, user, param, direction, kept, step / 2.0f);
        found = (4.0 * fine - coarse) / 3.0;
        if (fabs(found - expected) <= tolerance * fabs(expected)) return;
        step /= 4.0f;
    }
    fail_msg("%s: slope by gradient %.7g, by differences %.7g", param->name, expected, found);
}

static inline void check_differences(differences_loss loss, void *user, const strait_param *param) {
    check_differences_within(loss, user, param, 1e-3);
}
