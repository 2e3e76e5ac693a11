#include "stage/replicas/quantize.h"

#include "stage/replicas/value_set.h"

static size_t block_bytes(int bits, int64_t n) {
    return sizeof(float) + (size_t)(n * bits + 7) / 8;
}

size_t strait_quantized_bytes(int bits, int64_t n) {
    if (bits == 32) return (size_t)n * sizeof(float);
    const int64_t whole = n / STRAIT_QUANTIZE_BLOCK, rest = n % STRAIT_QUANTIZE_BLOCK;
    return (size_t)whole * block_bytes(bits, STRAIT_QUANTIZE_BLOCK) +
           (rest > 0 ? block_bytes(bits, rest) : 0);
}

/* Not cached: the check tests a few bits. */
const struct strait_value_set *strait_value_set_best(void) {
    const struct strait_value_set *best = strait_value_sets;
    for (const struct strait_value_set *set = best; set->name != NULL; set++)
        if (set->is_supported()) best = set;
    return best;
}

static int block_at(int64_t at, int64_t n) {
    const int64_t left = n - at;
    return left < STRAIT_QUANTIZE_BLOCK ? (int)left : STRAIT_QUANTIZE_BLOCK;
}

void strait_quantize(int bits, const float *x, float *residual, int64_t n, unsigned char *out) {
    const struct strait_value_set *set = strait_value_set_best();
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int m = block_at(at, n);
        set->quantize(bits, x + at, residual + at, m, out);
        out += block_bytes(bits, m);
    }
}

/* A scale from the wire may be anything: infinite ones make NaN, which the norm of the step shows.
 */
void strait_dequantize(int bits, const unsigned char *in, int64_t n, float *out) {
    const struct strait_value_set *set = strait_value_set_best();
    for (int64_t at = 0; at < n; at += STRAIT_QUANTIZE_BLOCK) {
        const int m = block_at(at, n);
        set->dequantize(bits, in, m, out + at);
        in += block_bytes(bits, m);
    }
}
