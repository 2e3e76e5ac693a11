#include "convert/floats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest f32 that rounds to a finite f16 is just below this. */
static const float f16_limit = 65520.0f;

int strait_floats_format(const char *name, strait_dtype *out) {
    static const struct {
        const char *name;
        strait_dtype dtype;
    } formats[] = {{"F32", STRAIT_F32}, {"F16", STRAIT_F16}, {"BF16", STRAIT_BF16}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *out = formats[i].dtype;
            return 1;
        }
    return 0;
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The exponent of f16 is shifted by multiplying with 2^112, which also normalises subnormal
 * numbers; infinity and NaN have the largest exponent and are set apart. */
static float widen_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu) << 13;
    if ((half & 0x7c00u) == 0x7c00u) return from_bits(sign | rest | 0x7f800000u);
    return from_bits(sign | to_bits(from_bits(rest) * 0x1p112f));
}

static uint16_t narrow_f16(float value) {
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u); // NaN
    if (!(from_bits(size) < f16_limit)) return (uint16_t)(sign | 0x7c00u);
    /* Subnormal: adding 0.5 rounds at the last bit of f16, and leaves the result in the low bits.
     */
    if (size < 0x38800000u) return (uint16_t)(sign | (to_bits(from_bits(size) + 0.5f) & 0x7ffu));
    const uint32_t odd = size >> 13 & 1u;
    return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + odd) >> 13));
}

static uint16_t narrow_bf16(float value) {
    const uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u); // NaN
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void strait_floats_widen(float *out, const unsigned char *from, strait_dtype format, int64_t n) {
    uint16_t half;
    if (format == STRAIT_F32) {
        if (n > 0) memcpy(out, from, (size_t)n * sizeof *out);
    } else if (format == STRAIT_BF16) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, from + 2 * i, sizeof half);
            out[i] = from_bits((uint32_t)half << 16);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&half, from + 2 * i, sizeof half);
            out[i] = widen_f16(half);
        }
    }
}

/* Values that are converted at a time: few enough for the first cache, and loops over them have no
 * exit in the middle, so that compilers use vectors. */
enum {
    BLOCK = 1024
};

static int64_t block_of(int64_t first, int64_t n) {
    return n - first < BLOCK ? n - first : BLOCK;
}

void strait_floats_narrow(unsigned char *out, const float *from, strait_dtype format, int64_t n) {
    uint16_t halves[BLOCK];
    if (format == STRAIT_F32) {
        if (n > 0) memmove(out, from, (size_t)n * sizeof *from);
        return;
    }
    /* From the first to the last: the output never overtakes the input. */
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = block_of(first, n);
        if (format == STRAIT_BF16)
            for (int64_t i = 0; i < count; i++)
                halves[i] = narrow_bf16(from[first + i]);
        else
            for (int64_t i = 0; i < count; i++)
                halves[i] = narrow_f16(from[first + i]);
        memcpy(out + 2 * first, halves, (size_t)count * sizeof *halves);
    }
}

int64_t strait_floats_first_nonfinite(const float *values, int64_t n) {
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = block_of(first, n);
        uint32_t largest = 0;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t size = to_bits(values[first + i]) & 0x7fffffffu;
            largest = size > largest ? size : largest;
        }
        for (int64_t i = first; largest >= 0x7f800000u && i < first + count; i++)
            if (!isfinite(values[i])) return i;
    }
    return -1;
}

int64_t strait_floats_overflow(const float *values, strait_dtype format, int64_t n) {
    for (int64_t i = 0; format == STRAIT_F16 && i < n; i++)
        if (!(fabsf(values[i]) < f16_limit)) return i;
    return -1;
}

void strait_floats_text(float value, char out[32]) {
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(out, 32, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value) break;
    }
}
