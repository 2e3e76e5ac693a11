/* log_scale.h - the log-scale payload: 4 bits per value and a 4-bit scale per row. The sixteen
 * scales are half an octave apart, below the largest magnitude of the payload.
 *
 *   top = 2^(T / 2), T the smallest integer for which no magnitude exceeds it; 0 for all zeros
 *   s   = top 2^(-c / 2), c from 0 to 15: nearest to the row's largest magnitude a, or, where the
 *         scale must cover the row (stochastic rounding), the smallest with s >= a
 *
 *   nearest      unit = s / 8     code = floor(x / unit) + 8          clamped to [0, 15]
 *   stochastic   unit = s / 7.5   code = floor(x / unit + 7.5 + r)    r uniform in [0, 1)
 *   restored     (code - 7.5) unit
 *
 * Only exactly specified operations, so that every device computes the same codes and values.
 * Shared by C and CUDA. */
#pragma once

#include "backend/scale.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STRAIT_LOG_SCALE_LAST 15 // code of the smallest scale

/* 2^(-1/2) and 2^(-1/4): half an octave and a quarter of one. */
#define STRAIT_LOG_SCALE_HALF    0.707106781f
#define STRAIT_LOG_SCALE_QUARTER 0.840896415f

/* The top scale of a payload whose largest magnitude is `largest`. */
STRAIT_SCALE float strait_log_scale_top(float largest) {
    int exponent = 0;
    if (!(largest > STRAIT_SCALE_LEAST)) return 0.0f;
    if (largest > STRAIT_SCALE_MOST) return STRAIT_SCALE_MOST;
    const float part = frexpf(largest, &exponent); // in [1/2, 1)
    if (part == 0.5f) return largest;              // NOLINT: a power of two is its own bound
    return ldexpf(part <= STRAIT_LOG_SCALE_HALF ? STRAIT_LOG_SCALE_HALF : 1.0f, exponent);
}

/* The scale of a code: top 2^(-code / 2). */
STRAIT_SCALE float strait_log_scale_scale(float top, int code) {
    return ((code & 1) != 0 ? top * STRAIT_LOG_SCALE_HALF : top) / (float)(1 << (code >> 1));
}

/* The scale code of a row whose largest magnitude is `largest`. "Nearest" switches a quarter octave
 * below each scale, the geometric mean of neighbours. */
STRAIT_SCALE int strait_log_scale_code(float top, float largest, int is_covered) {
    int code = 0;
    while (code < STRAIT_LOG_SCALE_LAST &&
           (is_covered ? largest <= strait_log_scale_scale(top, code + 1)
                       : largest < strait_log_scale_scale(top, code) * STRAIT_LOG_SCALE_QUARTER))
        code++;
    return code;
}

/* The difference between the values of neighbouring codes. */
STRAIT_SCALE float strait_log_scale_unit(float scale, int is_covered) {
    return is_covered ? scale / 7.5f : scale / 8.0f;
}

#ifdef __cplusplus
}
#endif
