/* payload_value.h - conversion of single values to payload codes and back, for the reference and
 * vector versions of packing. payload.cuh is the device's counterpart; both must give the same
 * bytes. */
#pragma once

#include "backend/kernels.h"
#include "base/rng/rng.h"

#include <math.h>
#include <string.h>

/* The value if it may be sent, else 0 and one more in *bad. The comparison is false for NaN. */
static inline float strait_payload_value(float value, double *bad) {
    if (fabsf(value) <= STRAIT_WIRE_LIMIT) return value;
    *bad += 1;
    return 0.0f;
}

/* A uniform random number in [0, 1) for value i of the tensor: 24 bits, exact in f32. */
static inline float strait_payload_uniform(strait_pack_params params, int64_t i) {
    uint32_t words[4];
    strait_rng_draw((strait_rng){params.seed, params.stream}, (uint64_t)i / 4, words);
    return (float)(words[i % 4] >> 8) * 0x1p-24f;
}

/* bf16 bits, rounded to nearest, half to even; or stochastically, up with a probability that keeps
 * the mean. */
static inline uint16_t strait_payload_bf16(float value, strait_pack_params params, int64_t i) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t up = params.is_stochastic
                            ? (uint32_t)(strait_payload_uniform(params, i) * 0x1p16f)
                            : 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)((bits + up) >> 16);
}

static inline float strait_payload_f32(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Code c of a packed row, sign-extended. */
static inline int strait_payload_code(const unsigned char *codes, int64_t c, int bits) {
    if (bits == 8) return (int8_t)codes[c];
    const int nibble = c % 2 == 0 ? codes[c / 2] & 15 : codes[c / 2] >> 4;
    return nibble < 8 ? nibble : nibble - 16;
}

/* The offset of the codes of row n: after the base and one scale code per row. */
static inline int64_t strait_payload_codes(int64_t rows, int64_t cols, int bits, int64_t n) {
    return 4 + rows + n * ((cols * bits + 7) / 8);
}

static inline int64_t strait_payload_bytes(strait_tensor x, strait_pack_params params) {
    const int64_t cols = strait_pack_cols(x, params);
    return params.bits >= 16 ? x.rows * cols * params.bits / 8
                             : strait_payload_codes(x.rows, cols, params.bits, x.rows);
}

/* The largest magnitude among the values that may be sent: of values[0..n), and of the packed
 * columns of x. */
static inline float strait_payload_largest(const float *values, int64_t n) {
    double bad = 0;
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(strait_payload_value(values[i], &bad)));
    return largest;
}

static inline float strait_payload_largest_of(strait_tensor x, strait_pack_params params) {
    float largest = 0;
    for (int64_t n = 0; n < x.rows; n++)
        largest = fmaxf(largest, strait_payload_largest((const float *)x.data + n * x.cols,
                                                        strait_pack_cols(x, params)));
    return largest;
}

/* Adds a row's sums to its statistics: squared error, squared magnitude, non-finite values. */
static inline void strait_payload_add_stats(strait_tensor stats, int64_t row,
                                            const double sums[3]) {
    for (int i = 0; stats.data != NULL && i < 3; i++)
        ((float *)stats.data)[row * 3 + i] += (float)sums[i];
}
