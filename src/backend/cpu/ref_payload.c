/* ref_payload.c - rows as payload bytes: pack_rows, restore_rows, measure_rows (format in
 * kernels.h). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/payload_value.h"
#include "backend/scale.h"

#include <math.h>
#include <string.h>

/* 32 or 16 bits per value: no scales. */
static void pack_wide(unsigned char *to, strait_tensor stats, strait_tensor x,
                      strait_pack_params params) {
    const int64_t cols = strait_pack_cols(x, params);
    for (int64_t n = 0; n < x.rows; n++) {
        double sums[3] = {0};
        for (int64_t c = 0, i = n * cols; c < cols; c++, i++) {
            const float value = strait_payload_value(strait_cpu_f32(x)[n * x.cols + c], &sums[2]);
            float sent = value;
            if (params.bits == 32) {
                memcpy(to + i * 4, &value, 4);
            } else {
                const uint16_t half = strait_payload_bf16(value, params, i);
                memcpy(to + i * 2, &half, 2);
                sent = strait_payload_f32(half);
            }
            const double error = (double)value - (double)sent;
            sums[0] += error * error;
            sums[1] += (double)value * (double)value;
        }
        strait_payload_add_stats(stats, n, sums);
    }
}

/* Rounds to nearest, half to even, or stochastically; codes beyond the range saturate. */
static int code_of(float value, float inverse, strait_pack_params params, int64_t i) {
    const int most = strait_scale_codes(params.bits);
    const float scaled = value * inverse;
    const float rounded = params.is_stochastic ? floorf(scaled + strait_payload_uniform(params, i))
                                               : rintf(scaled);
    return (int)fminf(fmaxf(rounded, (float)-most), (float)most);
}

/* Packs the codes of row n into `to`. */
static void pack_row(unsigned char *to, strait_tensor stats, strait_tensor x, int64_t n,
                     float scale, strait_pack_params params) {
    double sums[3] = {0};
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    const int64_t cols = strait_pack_cols(x, params);
    for (int64_t c = 0; c < cols; c++) {
        const float value = strait_payload_value(strait_cpu_f32(x)[n * x.cols + c], &sums[2]);
        const int code = code_of(value, inverse, params, n * cols + c);
        if (params.bits == 8)
            to[c] = (unsigned char)code;
        else if (c % 2 == 0)
            to[c / 2] = (unsigned char)(code & 15);
        else
            to[c / 2] |= (unsigned char)((code & 15) << 4);
        const double error = (double)value - (double)((float)code * scale);
        sums[0] += error * error;
        sums[1] += (double)value * (double)value;
    }
    strait_payload_add_stats(stats, n, sums);
}

/* The base of the scales comes from the largest value of the whole message, so it is found first.
 */
static strait_err pack_rows(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_params params) {
    (void)s;
    assert((int64_t)strait_tensor_bytes(packed) == strait_payload_bytes(x, params));
    assert(stats.data == NULL || (stats.rows == x.rows && stats.cols == 3));
    unsigned char *to = packed.data;
    if (params.bits >= 16) {
        pack_wide(to, stats, x, params);
        return STRAIT_OK;
    }
    const int64_t cols = strait_pack_cols(x, params);
    const float base = strait_scale_base(strait_payload_largest_of(x, params), params.bits);
    memcpy(to, &base, 4);
    for (int64_t n = 0; n < x.rows; n++) {
        const float largest = strait_payload_largest(strait_cpu_f32(x) + n * x.cols, cols);
        const int code = strait_scale_code(base, largest, params.bits);
        to[4 + n] = (unsigned char)code;
        pack_row(to + strait_payload_codes(x.rows, cols, params.bits, n), stats, x, n,
                 strait_scale_of(base, code), params);
    }
    return STRAIT_OK;
}

/* Value i of a payload of 32 or 16 bits per value; not yet checked. */
static float restored(const unsigned char *from, int64_t i, int bits) {
    float value;
    uint16_t half;
    if (bits == 32) {
        memcpy(&value, from + i * 4, 4);
        return value;
    }
    memcpy(&half, from + i * 2, 2);
    return strait_payload_f32(half);
}

/* The bytes come from a peer. Whatever they are, the result is finite, and invalid values are
 * counted. */
static strait_err restore_rows(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_params params) {
    (void)s;
    assert((int64_t)strait_tensor_bytes(packed) == strait_payload_bytes(x, params));
    const unsigned char *from = packed.data;
    const int64_t cols = strait_pack_cols(x, params);
    const int bits = params.bits;
    float base = 0;
    if (bits < 16) memcpy(&base, from, 4);
    const float trusted = strait_scale_trust(base);
    for (int64_t n = 0; n < x.rows; n++) {
        double sums[3] = {0};
        const float scale = bits < 16 ? strait_scale_of(trusted, from[4 + n]) : 0;
        const unsigned char *codes = bits < 16 ? from + strait_payload_codes(x.rows, cols, bits, n)
                                               : from;
        for (int64_t c = 0; c < cols; c++) {
            const float value = bits < 16 ? (float)strait_payload_code(codes, c, bits) * scale
                                          : strait_payload_value(restored(from, n * cols + c, bits),
                                                                 &sums[2]);
            strait_cpu_put(x, n * x.cols + c, value);
            sums[1] += (double)value * (double)value;
        }
        if (base != trusted) sums[2] = (double)cols; // NOLINT: the received base was invalid
        strait_payload_add_stats(stats, n, sums);
    }
    return STRAIT_OK;
}

/* For codecs that compute their error themselves. */
static strait_err measure_rows(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error) {
    (void)s;
    assert(strait_cpu_same_shape(x, error) && stats.rows == x.rows && stats.cols == 3);
    for (int64_t n = 0; n < x.rows; n++) {
        double sums[3] = {0};
        for (int64_t i = n * x.cols; i < (n + 1) * x.cols; i++) {
            const double value = (double)strait_payload_value(strait_cpu_get(x, i), &sums[2]);
            const double off = (double)strait_cpu_get(error, i);
            sums[0] += off * off;
            sums[1] += value * value;
        }
        strait_payload_add_stats(stats, n, sums);
    }
    return STRAIT_OK;
}

void strait_ref_payload(struct strait_kernel_set *set) {
    set->base.pack_rows = pack_rows;
    set->base.restore_rows = restore_rows;
    set->base.measure_rows = measure_rows;
}
