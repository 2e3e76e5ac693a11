#include "stage/replicas/quantize.h"

#include <math.h>
#include <string.h>

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

/* NaN if any value is not finite: comparisons with NaN alone would skip it. */
static float scale_of(int bits, const float *x, const float *residual, int n) {
    float most = 0.0f, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const float value = fabsf(x[i] + residual[i]);
        if (value > most) most = value;
        sum += value - value; // 0, or NaN
    }
    return most / (float)largest_code(bits) + sum;
}

static void put_code(int bits, unsigned char *codes, int i, int code) {
    const int each = 8 / bits, shift = i % each * bits;
    if (shift == 0) codes[i / each] = 0;
    codes[i / each] = (unsigned char)(codes[i / each] | (code & ((1 << bits) - 1)) << shift);
}

static int get_code(int bits, const unsigned char *codes, int i) {
    const int each = 8 / bits;
    const int code = codes[i / each] >> (i % each * bits) & ((1 << bits) - 1);
    return code > largest_code(bits) ? code - (1 << bits) : code;
}

/* 5/4 of the mean magnitude; NaN if any value is not finite. */
static float scale_of_two(const float *x, const float *residual, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += fabsf(x[i] + residual[i]);
    return 1.25f * sum / (float)n;
}

/* Codes -2 to 1 stand for -3/2, -1/2, 1/2 and 3/2 of the scale. */
static void quantize_two(const float *x, float *residual, int n, unsigned char *out) {
    const float scale = scale_of_two(x, residual, n);
    const int is_finite = isfinite(scale);
    memcpy(out, &scale, sizeof scale);
    for (int i = 0; i < n; i++) {
        const float value = x[i] + residual[i];
        const int is_large = fabsf(value) >= scale;
        const int code = value >= 0.0f ? is_large : -1 - is_large;
        residual[i] = is_finite ? value - ((float)code + 0.5f) * scale : 0.0f;
        put_code(2, out + sizeof scale, i, code);
    }
}

static void quantize_block(int bits, const float *x, float *residual, int n, unsigned char *out) {
    const float scale = scale_of(bits, x, residual, n);
    const int is_finite = isfinite(scale), most = largest_code(bits);
    memcpy(out, &scale, sizeof scale);
    for (int i = 0; i < n; i++) {
        const float value = x[i] + residual[i];
        int code = is_finite && scale > 0.0f ? (int)lrintf(value / scale) : 0;
        if (code > most) code = most; // the division may round up
        if (code < -most) code = -most;
        residual[i] = is_finite ? value - (float)code * scale : 0.0f;
        put_code(bits, out + sizeof scale, i, code);
    }
}

void strait_quantize(int bits, const float *x, float *residual, int64_t n, unsigned char *out) {
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int64_t left = n - at;
        const int m = left < STRAIT_QUANTIZE_BLOCK ? (int)left : STRAIT_QUANTIZE_BLOCK;
        if (bits == 2)
            quantize_two(x + at, residual + at, m, out);
        else
            quantize_block(bits, x + at, residual + at, m, out);
        out += block_bytes(bits, m);
    }
}

/* A scale from the wire may be anything: infinite ones make NaN, which the norm of the step shows.
 */
void strait_dequantize(int bits, const unsigned char *in, int64_t n, float *out) {
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int64_t left = n - at;
        const int m = left < STRAIT_QUANTIZE_BLOCK ? (int)left : STRAIT_QUANTIZE_BLOCK;
        const float middle = bits == 2 ? 0.5f : 0.0f;
        float scale;
        memcpy(&scale, in, sizeof scale);
        for (int i = 0; i < m; i++)
            out[at + i] = ((float)get_code(bits, in + sizeof scale, i) + middle) * scale;
        in += block_bytes(bits, m);
    }
}
