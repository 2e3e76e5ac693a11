#include "stage/replicas/quantize.h"

#include <math.h>
#include <string.h>

/* Loops are over whole lanes, so that compilers use vector instructions for any baseline. */
enum {
    LANES = 8
};

static int largest_code(int bits) {
    return (1 << (bits - 1)) - 1;
}

static size_t block_bytes(int bits, int64_t n) {
    return sizeof(float) + (size_t)(n * bits + 7) / 8;
}

size_t strait_quantized_bytes(int bits, int64_t n) {
    if (bits == 32) return (size_t)n * sizeof(float);
    const int64_t whole = n / STRAIT_QUANTIZE_BLOCK, rest = n % STRAIT_QUANTIZE_BLOCK;
    return (size_t)whole * block_bytes(bits, STRAIT_QUANTIZE_BLOCK) +
           (rest > 0 ? block_bytes(bits, rest) : 0);
}

/* What is rounded: x + residual, then zeros up to a whole block. */
static void add_residual(const float *x, const float *residual, int n, float *out) {
    for (int i = 0; i < n; i++)
        out[i] = x[i] + residual[i];
    for (int i = n; i < STRAIT_QUANTIZE_BLOCK; i++)
        out[i] = 0.0f;
}

/* The largest magnitude and the sum of magnitudes; both NaN if a value is not finite, which
 * comparisons alone would skip. */
static void measure(const float *values, float *most, float *sum) {
    float largest[LANES] = {0}, sums[LANES] = {0}, faults[LANES] = {0};
    for (int i = 0; i < STRAIT_QUANTIZE_BLOCK; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float value = fabsf(values[i + k]);
            largest[k] = value > largest[k] ? value : largest[k];
            sums[k] += value;
            faults[k] += value - value; // 0, or NaN
        }
    *most = *sum = 0.0f;
    for (int k = 0; k < LANES; k++) {
        *most = largest[k] > *most ? largest[k] : *most;
        *sum += sums[k];
        faults[0] += k > 0 ? faults[k] : 0.0f;
    }
    *most += faults[0];
    *sum += faults[0];
}

/* Nearest, ties to even, as lrintf does: 1.5 x 2^23 leaves no bits for a fraction. */
static void round_codes(const float *values, float scale, int most, float *codes) {
    static const float magic = 12582912.0f;
    const float limit = (float)most;
    for (int i = 0; i < STRAIT_QUANTIZE_BLOCK; i++) {
        const float ratio = values[i] / scale;
        const float code = (ratio + magic) - magic;
        const float low = code < -limit ? -limit : code;
        codes[i] = low > limit ? limit : low; // the division may round up
    }
}

/* Codes -2 to 1 stand for -3/2, -1/2, 1/2 and 3/2 of the scale. */
static void choose_levels(const float *values, float scale, float *codes) {
    for (int i = 0; i < STRAIT_QUANTIZE_BLOCK; i++) {
        const float larger = fabsf(values[i]) >= scale ? 1.0f : 0.0f;
        codes[i] = values[i] >= 0.0f ? larger : -1.0f - larger;
    }
}

static void pack(int bits, const float *codes, int n, unsigned char *out) {
    unsigned char bytes[STRAIT_QUANTIZE_BLOCK];
    const int each = 8 / bits, mask = (1 << bits) - 1, n_bytes = (n * bits + 7) / 8;
    for (int i = 0; i < STRAIT_QUANTIZE_BLOCK; i++)
        bytes[i] = (unsigned char)((int)codes[i] & mask);
    for (int i = n; i < n_bytes * each; i++)
        bytes[i] = 0;
    for (int i = 0; i < n_bytes; i++) {
        int byte = 0;
        for (int k = 0; k < each; k++)
            byte |= bytes[i * each + k] << (k * bits);
        out[i] = (unsigned char)byte;
    }
}

static void quantize_block(int bits, const float *x, float *residual, int n, unsigned char *out) {
    float values[STRAIT_QUANTIZE_BLOCK], codes[STRAIT_QUANTIZE_BLOCK] = {0};
    const float middle = bits == 2 ? 0.5f : 0.0f;
    float most, sum;
    add_residual(x, residual, n, values);
    measure(values, &most, &sum);
    const float scale = bits == 2 ? 1.25f * sum / (float)n : most / (float)largest_code(bits);
    const int is_finite = isfinite(scale);
    if (bits == 2)
        choose_levels(values, scale, codes);
    else if (is_finite && scale > 0.0f)
        round_codes(values, scale, largest_code(bits), codes);
    for (int i = 0; i < n; i++)
        residual[i] = is_finite ? values[i] - (codes[i] + middle) * scale : 0.0f;
    memcpy(out, &scale, sizeof scale);
    pack(bits, codes, n, out + sizeof scale);
}

void strait_quantize(int bits, const float *x, float *residual, int64_t n, unsigned char *out) {
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int64_t left = n - at;
        const int m = left < STRAIT_QUANTIZE_BLOCK ? (int)left : STRAIT_QUANTIZE_BLOCK;
        quantize_block(bits, x + at, residual + at, m, out);
        out += block_bytes(bits, m);
    }
}

static void dequantize_block(int bits, const unsigned char *in, int n, float *out) {
    const int each = 8 / bits, shift = 32 - bits;
    const float middle = bits == 2 ? 0.5f : 0.0f;
    float scale;
    memcpy(&scale, in, sizeof scale);
    in += sizeof scale;
    for (int i = 0; i < n; i += each)
        for (int k = 0; k < each && i + k < n; k++) {
            const uint32_t bits_of = (uint32_t)in[i / each] >> (k * bits) << shift;
            out[i + k] = ((float)((int32_t)bits_of >> shift) + middle) * scale; // signed
        }
}

/* A scale from the wire may be anything: infinite ones make NaN, which the norm of the step shows.
 */
void strait_dequantize(int bits, const unsigned char *in, int64_t n, float *out) {
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int64_t left = n - at;
        const int m = left < STRAIT_QUANTIZE_BLOCK ? (int)left : STRAIT_QUANTIZE_BLOCK;
        /* Constants unroll the loops. */
        if (bits == 8)
            dequantize_block(8, in, m, out + at);
        else if (bits == 4)
            dequantize_block(4, in, m, out + at);
        else
            dequantize_block(2, in, m, out + at);
        in += block_bytes(bits, m);
    }
}
