/* octave.h - rows at 4 bits a value and 4 bits a scale: sixteen scales, half an octave apart, below
 * the largest of a crossing.
 *
 *   top = 2^(T / 2), the smallest of these that no value passes; 0 where there is none
 *   s   = top 2^(-c / 2), c from 0 to 15: the nearest to the row's largest value a, or, where rows
 *         must be covered, the smallest with s >= a
 *
 *   to the middle   unit = s / 8     code = floor(x / unit) + 8          within [0, 15]
 *   unbiased        unit = s / 7.5   code = floor(x / unit + 7.5 + r)    r random in [0, 1)
 *   restored        (code - 7.5) unit
 *
 * Exact arithmetic only, so that every device makes the same codes and numbers. */
#pragma once

#include "backend/scale.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_LOG_SCALE_LAST 15 // code of the smallest scale

/* What lies behind half an octave and a quarter of one: 2^(-1/2), 2^(-1/4). */
#define STRAIT_LOG_SCALE_HALF    0.707106781f
#define STRAIT_LOG_SCALE_QUARTER 0.840896415f

STRAIT_SCALE float strait_log_scale_top(float largest) {
    int exponent = 0;
    if (!(largest > STRAIT_SCALE_LEAST)) return 0.0f;
    if (largest > STRAIT_SCALE_MOST) return STRAIT_SCALE_MOST;
    const float part = frexpf(largest, &exponent); // in [1/2, 1)
    if (part == 0.5f) return largest;              // NOLINT: a power of two is its own bound
    return ldexpf(part <= STRAIT_LOG_SCALE_HALF ? STRAIT_LOG_SCALE_HALF : 1.0f, exponent);
}

STRAIT_SCALE float strait_log_scale_scale(float top, int code) {
    return ((code & 1) != 0 ? top * STRAIT_LOG_SCALE_HALF : top) / (float)(1 << (code >> 1));
}

/* The scale's code for a row whose largest value is `largest`. */
STRAIT_SCALE int strait_log_scale_code(float top, float largest, int is_covered) {
    int code = 0;
    while (code < STRAIT_LOG_SCALE_LAST &&
           (is_covered ? largest <= strait_log_scale_scale(top, code + 1)
                       : largest < strait_log_scale_scale(top, code) * STRAIT_LOG_SCALE_QUARTER))
        code++;
    return code;
}

/* One step between codes. */
STRAIT_SCALE float strait_log_scale_unit(float scale, int is_covered) {
    return is_covered ? scale / 7.5f : scale / 8.0f;
}

#ifdef __cplusplus
}
#endif
