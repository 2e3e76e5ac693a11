/* ref_log_scale.c - log-scale payloads (backend/log_scale.h): 4 bits per value and per row scale.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/payload_value.h"
#include "backend/log_scale.h"

/* A nibble for the scale and one per value, rounded up to whole bytes. */
static int64_t row_bytes(int64_t cols) {
    return (cols + 2) / 2;
}

/* Low halves come first and overwrite the byte, so rows need not be cleared. */
static void put_nibble(unsigned char *row, int64_t i, int value) {
    if (i % 2 == 0)
        row[i / 2] = (unsigned char)value;
    else
        row[i / 2] |= (unsigned char)(value << 4);
}

/* Two values share a byte, the first in its lower half. */
static int nibble_of(const unsigned char *row, int64_t i) {
    return i % 2 == 0 ? row[i / 2] & 15 : row[i / 2] >> 4;
}

static int code_of(float value, float inverse, strait_pack_params params, int64_t i) {
    const float scaled = value * inverse;
    const float code = params.is_stochastic
                           ? floorf(scaled + (7.5f + strait_payload_uniform(params, i)))
                           : floorf(scaled) + 8.0f;
    return (int)fminf(fmaxf(code, 0.0f), 15.0f);
}

/* Packs row n of x into `to`, `unit` apart per code, and adds its statistics. A unit of 0 packs
 * zeros. */
static void pack_row(unsigned char *to, strait_tensor stats, strait_tensor x, int64_t n, float unit,
                     strait_pack_params params) {
    double sums[3] = {0};
    const float inverse = unit > 0 ? 1.0f / unit : 0.0f;
    const int64_t cols = strait_pack_cols(x, params);
    for (int64_t c = 0; c < cols; c++) {
        const float value = strait_payload_value(strait_cpu_f32(x)[n * x.cols + c], &sums[2]);
        const int code = code_of(value, inverse, params, n * cols + c);
        put_nibble(to, c + 1, code);
        const double error = (double)value - (double)(((float)code - 7.5f) * unit);
        sums[0] += error * error;
        sums[1] += (double)value * (double)value;
    }
    strait_payload_add_stats(stats, n, sums);
}

static strait_err log_scale_pack(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                                 strait_tensor x, strait_pack_params params) {
    (void)s;
    const int64_t cols = strait_pack_cols(x, params);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * row_bytes(cols));
    unsigned char *to = packed.data;
    const float top = strait_log_scale_top(strait_payload_largest_of(x, params));
    memcpy(to, &top, 4);
    for (int64_t n = 0; n < x.rows; n++) {
        unsigned char *row = to + 4 + n * row_bytes(cols);
        const float largest = strait_payload_largest(strait_cpu_f32(x) + n * x.cols, cols);
        const int code = strait_log_scale_code(top, largest, params.is_stochastic);
        const float scale = strait_log_scale_scale(top, code);
        put_nibble(row, 0, code);
        pack_row(row, stats, x, n, strait_log_scale_unit(scale, params.is_stochastic), params);
    }
    return STRAIT_OK;
}

static strait_err log_scale_restore(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                                    strait_tensor packed, strait_pack_params params) {
    (void)s;
    const int64_t cols = strait_pack_cols(x, params);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * row_bytes(cols));
    const unsigned char *from = packed.data;
    float top;
    memcpy(&top, from, 4);
    const float trusted = strait_scale_trust(top);
    for (int64_t n = 0; n < x.rows; n++) {
        double sums[3] = {0};
        const unsigned char *row = from + 4 + n * row_bytes(cols);
        const float scale = strait_log_scale_scale(trusted, nibble_of(row, 0));
        const float unit = strait_log_scale_unit(scale, params.is_stochastic);
        for (int64_t c = 0; c < cols; c++) {
            const float value = ((float)nibble_of(row, c + 1) - 7.5f) * unit;
            strait_cpu_put(x, n * x.cols + c, value);
            sums[1] += (double)value * (double)value;
        }
        if (top != trusted) sums[2] = (double)cols; // NOLINT: the received top was invalid
        strait_payload_add_stats(stats, n, sums);
    }
    return STRAIT_OK;
}

void strait_ref_log_scale(struct strait_kernel_set *set) {
    set->log_scale.pack = log_scale_pack;
    set->log_scale.restore = log_scale_restore;
}
