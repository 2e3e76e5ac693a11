#include "stage/replicas/value_set.h"

#include "stage/replicas/quantize.h"

#include <math.h>
#include <string.h>

#define JOIN(name, isa)   strait_value_##name##_##isa
#define EXPAND(name, isa) JOIN(name, isa)
#define ISA(name)         EXPAND(name, STRAIT_ISA)

/* Loops are over whole lanes, so that compilers use vector instructions for any set. */
enum {
    LANES = 8,
    BLOCK = STRAIT_QUANTIZE_BLOCK
};

static int largest_code(int bits) {
    return (1 << (bits - 1)) - 1;
}

/* ---- rounding ---- */

/* What is rounded: x + residual, then zeros up to a whole block. */
static void add_residual(const float *x, const float *residual, int n, float *restrict out) {
    if (n == BLOCK) {
        for (int i = 0; i < BLOCK; i++)
            out[i] = x[i] + residual[i];
        return;
    }
    for (int i = 0; i < n; i++)
        out[i] = x[i] + residual[i];
    for (int i = n; i < BLOCK; i++)
        out[i] = 0.0f;
}

/* The largest magnitude, whatever the order, by halves: compilers do not vectorise a maximum in
 * lanes. Values that are not numbers may be skipped. */
static float largest_of(const float *values) {
    float most[BLOCK / 2];
    for (int i = 0; i < BLOCK / 2; i++) {
        const float a = fabsf(values[i]), b = fabsf(values[i + BLOCK / 2]);
        most[i] = a > b ? a : b;
    }
    for (int n = BLOCK / 4; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            most[i] = most[i] > most[i + n] ? most[i] : most[i + n];
    return most[0];
}

/* 0, or NaN if a value is not finite. */
static float faults_of(const float *values) {
    float faults[LANES] = {0};
    for (int i = 0; i < BLOCK; i += LANES)
        for (int k = 0; k < LANES; k++)
            faults[k] += values[i + k] - values[i + k];
    for (int k = 1; k < LANES; k++)
        faults[0] += faults[k];
    return faults[0];
}

/* Of magnitudes, in lanes. */
static float sum_of(const float *values) {
    float sums[LANES] = {0}, sum = 0.0f;
    for (int i = 0; i < BLOCK; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += fabsf(values[i + k]);
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

/* The factor of the codes of a block; not finite if a value is not. */
static float scale_of(int bits, const float *values, int n) {
    const float faults = faults_of(values);
    if (bits == 2) return 1.25f * (sum_of(values) + faults) / (float)n;
    return (largest_of(values) + faults) / (float)largest_code(bits);
}

/* Nearest, ties to even, as lrintf does: 1.5 x 2^23 leaves no bits for a fraction. */
static void round_codes(const float *values, float scale, int most, float *restrict codes) {
    static const float magic = 12582912.0f;
    const float limit = (float)most;
    for (int i = 0; i < BLOCK; i++) {
        const float ratio = values[i] / scale;
        const float code = (ratio + magic) - magic;
        const float low = code < -limit ? -limit : code;
        codes[i] = low > limit ? limit : low; // the division may round up
    }
}

/* Codes -2 to 1 stand for -3/2, -1/2, 1/2 and 3/2 of the scale. */
static void choose_levels(const float *values, float scale, float *restrict codes) {
    for (int i = 0; i < BLOCK; i++) {
        const float larger = fabsf(values[i]) >= scale ? 1.0f : 0.0f;
        codes[i] = values[i] >= 0.0f ? larger : -1.0f - larger;
    }
}

/* `codes` are the whole block, with zeros behind its values. */
static void pack(int bits, const float *codes, int n, unsigned char *out) {
    unsigned char bytes[BLOCK], packed[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        bytes[i] = (unsigned char)(int)codes[i];
    if (bits == 4)
        for (size_t i = 0; i < BLOCK / 2; i++)
            packed[i] = (unsigned char)((bytes[2 * i] & 15) | bytes[2 * i + 1] << 4);
    else if (bits == 2)
        for (size_t i = 0; i < BLOCK / 4; i++)
            packed[i] = (unsigned char)((bytes[4 * i] & 3) | (bytes[4 * i + 1] & 3) << 2 |
                                        (bytes[4 * i + 2] & 3) << 4 | bytes[4 * i + 3] << 6);
    memcpy(out, bits == 8 ? bytes : packed, (size_t)(n * bits + 7) / 8);
}

static void keep_lost(const float *values, const float *codes, float middle, float scale, int n,
                      float *restrict residual) {
    for (int i = 0; i < n; i++)
        residual[i] = values[i] - (codes[i] + middle) * scale;
}

void ISA(quantize)(int bits, const float *x, float *residual, int n, unsigned char *out);
void ISA(quantize)(int bits, const float *x, float *residual, int n, unsigned char *out) {
    float values[BLOCK], codes[BLOCK];
    add_residual(x, residual, n, values);
    const float scale = scale_of(bits, values, n);
    const int is_finite = isfinite(scale);
    if (bits == 2)
        choose_levels(values, scale, codes);
    else if (is_finite && scale > 0.0f)
        round_codes(values, scale, largest_code(bits), codes);
    else
        memset(codes, 0, sizeof codes);
    if (is_finite)
        keep_lost(values, codes, bits == 2 ? 0.5f : 0.0f, scale, n, residual);
    else
        memset(residual, 0, (size_t)n * sizeof *residual);
    memset(codes + n, 0, (size_t)(BLOCK - n) * sizeof *codes);
    memcpy(out, &scale, sizeof scale);
    pack(bits, codes, n, out + sizeof scale);
}

/* ---- reading back ---- */

/* Codes of a whole block, signed. */
static void unpack(int bits, const unsigned char *packed, signed char *restrict codes) {
    if (bits == 8) memcpy(codes, packed, BLOCK);
    for (size_t i = 0; bits == 4 && i < BLOCK / 2; i++) {
        codes[2 * i] = (signed char)((signed char)(packed[i] << 4) >> 4);
        codes[2 * i + 1] = (signed char)((signed char)packed[i] >> 4);
    }
    for (size_t i = 0; bits == 2 && i < BLOCK / 4; i++)
        for (size_t k = 0; k < 4; k++)
            codes[4 * i + k] = (signed char)((signed char)(packed[i] << (6 - 2 * k)) >> 6);
}

void ISA(dequantize)(int bits, const unsigned char *in, int n, float *out);
void ISA(dequantize)(int bits, const unsigned char *in, int n, float *out) {
    unsigned char packed[BLOCK] = {0};
    signed char codes[BLOCK] = {0};
    const float middle = bits == 2 ? 0.5f : 0.0f;
    float scale;
    memcpy(&scale, in, sizeof scale);
    in += sizeof scale;
    if (n < BLOCK) {
        memcpy(packed, in, (size_t)(n * bits + 7) / 8);
        in = packed;
    }
    unpack(bits, in, codes);
    for (int i = 0; i < n; i++)
        out[i] = ((float)codes[i] + middle) * scale;
}

/* ---- averages ---- */

void ISA(add)(float share, const float *values, int n, float *sum);
void ISA(add)(float share, const float *values, int n, float *sum) {
    for (int i = 0; i < n; i++)
        sum[i] += share * values[i];
}

void ISA(subtract)(const float *a, const float *b, int n, float *out);
void ISA(subtract)(const float *a, const float *b, int n, float *out) {
    for (int i = 0; i < n; i++)
        out[i] = a[i] - b[i];
}

/* The sum of squares, in lanes. */
double ISA(squares)(const float *values, int n);
double ISA(squares)(const float *values, int n) {
    double sums[LANES] = {0}, sum = 0.0;
    int at = 0;
    for (; at + LANES <= n; at += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += (double)values[at + k] * (double)values[at + k];
    for (int k = 0; at + k < n; k++)
        sums[k] += (double)values[at + k] * (double)values[at + k];
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

void ISA(scale)(float factor, int n, float *values);
void ISA(scale)(float factor, int n, float *values) {
    for (int i = 0; i < n; i++)
        values[i] *= factor;
}

/* Squared distances and sizes of up to LANES values, one per lane. */
static inline void step_lanes(const strait_value_step *s, int first, int n, double *distance,
                              double *size) {
    const float *average = s->average + first, *sent = s->sent + first;
    float *restrict anchor = s->anchor + first, *restrict velocity = s->velocity + first;
    for (int k = 0; k < n; k++) {
        const float apart = anchor[k] - sent[k] - average[k];
        velocity[k] = s->momentum * velocity[k] + average[k];
        anchor[k] -= s->rate * (average[k] + s->momentum * velocity[k]);
        distance[k] += (double)(apart * apart);
        size[k] += (double)(anchor[k] * anchor[k]);
    }
}

void ISA(step)(strait_value_step *step, int n);
void ISA(step)(strait_value_step *step, int n) {
    double distance[LANES] = {0}, size[LANES] = {0};
    int at = 0;
    for (; at + LANES <= n; at += LANES)
        step_lanes(step, at, LANES, distance, size);
    step_lanes(step, at, n - at, distance, size);
    for (int k = 0; k < LANES; k++) {
        step->distance += distance[k];
        step->size += size[k];
    }
}
