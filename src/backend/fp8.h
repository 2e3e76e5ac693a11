/* fp8.h - rounding to floats of 8 bits, for products that read them: e4m3 (values: 3 bits of
 * mantissa, up to 448) and e5m2 (gradients: 2 bits, up to 57344).
 *
 * A tensor is multiplied by a power of two first, the largest with which none of its values exceeds
 * the format: the multiplication is exact, and only the rounding loses bits. A tensor with
 * non-finite values is not scaled, and those become NaN, so that they still reach the gradient
 * norm. Shared by C and CUDA. */
#pragma once

#include "backend/scale.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest exponent of a scale: its inverse is still a normal number. The least, -120, follows
 * from the largest float, and its inverse is one, too. */
#define STRAIT_FP8_REACH 100

/* A tensor whose largest magnitude is `largest` is multiplied by 2 to this power. */
STRAIT_SCALE int strait_fp8_exponent(float largest, int is_gradient) {
    int exponent = 0;
    if (!(largest > 0.0f) || !(largest <= 3.402823466e38f)) return 0;
    const float part = frexpf(largest, &exponent); // in [1/2, 1); both limits are 7/8 of a power
    const int power = (is_gradient ? 16 : 9) - exponent - (part > 0.875f ? 1 : 0);
    return power < STRAIT_FP8_REACH ? power : STRAIT_FP8_REACH;
}

/* Bits of the mantissa, and the exponent of the smallest normal number. */
STRAIT_SCALE int strait_fp8_bits(int is_gradient) {
    return is_gradient ? 2 : 3;
}

STRAIT_SCALE int strait_fp8_least(int is_gradient) {
    return is_gradient ? -14 : -6;
}

#define STRAIT_FP8_NAN 0x7f // in both formats

/* The code of the value nearest to x, half to even, for |x| within the format's range; NaN for a
 * non-finite x. */
STRAIT_SCALE uint8_t strait_fp8_code(float x, int is_gradient) {
    const int bits = strait_fp8_bits(is_gradient), least = strait_fp8_least(is_gradient);
    const float size = fabsf(x);
    int exponent = 0;
    if (!(size <= 3.402823466e38f)) return STRAIT_FP8_NAN;
    (void)frexpf(size, &exponent);
    exponent = size < ldexpf(1.0f, least) ? least : exponent - 1;
    /* In units of the last place: a carry into the next exponent is right by itself. */
    const int units = (int)rintf(ldexpf(size, bits - exponent));
    const int code = units + ((exponent - least) << bits);
    return (uint8_t)(code | (signbit(x) != 0 ? 0x80 : 0));
}

STRAIT_SCALE float strait_fp8_value(uint8_t code, int is_gradient) {
    const int bits = strait_fp8_bits(is_gradient), least = strait_fp8_least(is_gradient);
    const int exponent = (code & 0x7f) >> bits, part = code & ((1 << bits) - 1);
    if ((code & 0x7f) == STRAIT_FP8_NAN) return NAN;
    const float size = exponent == 0
                           ? ldexpf((float)part, least - bits)
                           : ldexpf((float)(part + (1 << bits)), least + exponent - 1 - bits);
    return (code & 0x80) != 0 ? -size : size;
}

#ifdef __cplusplus
}
#endif
