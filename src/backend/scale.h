/* scale.h - the scales of rows packed at 8 or 4 bits: one byte each, sixteen steps per octave below
 * a base that all rows of a payload share.
 *
 *   scale(c) = base 2^((c - 255) / 16), c from 1 to 255; scale(0) = 0
 *
 * Only exactly specified operations (products, divisions by powers of two, a table), so that every
 * device computes the same scale from the same code. Shared by C and CUDA. */
#pragma once

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
    #define STRAIT_SCALE static __host__ __device__ inline
#else
    #define STRAIT_SCALE static inline
#endif

#define STRAIT_SCALE_LEAST 0x1p-100f // a smaller base becomes 0: no product underflows
#define STRAIT_SCALE_MOST  0x1p40f   // a larger base is cut to this, and its codes saturate

/* The largest code of a value of so many bits: codes are symmetric around 0. */
STRAIT_SCALE int strait_scale_codes(int bits) {
    return (1 << (bits - 1)) - 1;
}

/* Validates a base received over the wire, which may be any bits: what is out of range becomes 0.
 */
STRAIT_SCALE float strait_scale_trust(float base) {
    return base >= STRAIT_SCALE_LEAST && base <= STRAIT_SCALE_MOST ? base : 0.0f;
}

/* The scale of a code. steps[i] is 2^(-i / 16), rounded once: powf would differ between devices. */
STRAIT_SCALE float strait_scale_of(float base, int code) {
    static const float steps[16] = {1.0f,         0.957603281f, 0.917004043f, 0.878126080f,
                                    0.840896415f, 0.805245166f, 0.771105413f, 0.738413073f,
                                    0.707106781f, 0.677127773f, 0.648419777f, 0.620928906f,
                                    0.594603558f, 0.569394317f, 0.545253866f, 0.522136891f};
    const int down = 255 - code;
    return code == 0 ? 0.0f : base * steps[down & 15] / (float)(1 << (down >> 4));
}

/* The smallest base whose codes reach `largest`. */
STRAIT_SCALE float strait_scale_base(float largest, int bits) {
    const float n = (float)strait_scale_codes(bits);
    float base = largest / n;
    if (base * n < largest) base = nextafterf(base, INFINITY); // the division rounded down
    if (base > STRAIT_SCALE_MOST) return STRAIT_SCALE_MOST;
    return strait_scale_trust(base);
}

/* The code of the smallest scale whose codes reach `largest`, or that of the base if none does.
 * Scales grow with their codes, so a binary search finds it without logarithms. */
STRAIT_SCALE int strait_scale_code(float base, float largest, int bits) {
    if (base == 0.0f || largest == 0.0f) return 0;
    int low = 1, high = 255;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (strait_scale_of(base, middle) * (float)strait_scale_codes(bits) >= largest)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

#ifdef __cplusplus
}
#endif
