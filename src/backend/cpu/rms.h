/* rms.h - RMS norm of one row and its gradient, shared by the norm of rows and of heads. */
#pragma once

#include "backend/cpu/simd.h"

/* Gains from column c on; ones without a gain. */
static inline vec gain_at(const float *gain, int64_t c, int64_t left) {
    return gain != NULL ? load_some(gain + c, left) : splat(1.0f);
}

/* y = x * rstd * gain over one row; returns rstd. y may be x. */
static inline float rms_norm(act *y, const act *x, const float *gain, int64_t n, float epsilon) {
    const float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + epsilon);
    for (int64_t c = 0; c < n; c += LANES)
        store_some(y + c, load_some(x + c, n - c) * scale * gain_at(gain, c, n - c), n - c);
    return scale;
}

/* One vector of that: adds d_y x scale to d_gain and returns d_y x gain. */
static inline vec gain_back(float *restrict d_gain, const act *restrict d_y, const act *restrict x,
                            const float *restrict gain, float scale, int64_t left) {
    const vec both = load_some(d_y, left) * load_some(x, left);
    store_some(d_gain, load_some(d_gain, left) + both * scale, left);
    return both * load_some(gain, left);
}

/* Adds a row's part to d_gain, where there is a gain, and returns `shift` of
 * d_x = rstd * (d_y * gain - x * shift). Two accumulators hide the latency of the sums. */
static inline float rms_shift(float *d_gain, const act *d_y, const act *x, const float *gain,
                              float scale, int64_t n) {
    const float factor = scale * scale / (float)n;
    if (gain == NULL) return dot(d_y, x, n) * factor;
    vec sum[2] = {0};
    int64_t c = 0;
    for (; c + 2 * LANES <= n; c += 2 * LANES) {
        sum[0] += gain_back(d_gain + c, d_y + c, x + c, gain + c, scale, LANES);
        const int64_t d = c + LANES;
        sum[1] += gain_back(d_gain + d, d_y + d, x + d, gain + d, scale, LANES);
    }
    for (; c < n; c += LANES)
        sum[0] += gain_back(d_gain + c, d_y + c, x + c, gain + c, scale, n - c);
    return sum_lanes(sum[0] + sum[1]) * factor;
}
