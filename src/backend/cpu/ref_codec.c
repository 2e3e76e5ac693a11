/* ref_codec.c - kernels of transparent codecs: top-k payloads, Hadamard transform, orthonormal
 * columns. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/topk_row.h"

#include <math.h>
#include <string.h>

static strait_err topk_pack(struct strait_stream *s, strait_tensor packed, strait_tensor x,
                            int64_t keep, strait_pack_params params) {
    (void)s;
    assert(keep > 0 && keep <= x.cols);
    assert(strait_tensor_bytes(packed) ==
           (size_t)(x.rows * keep) * (2 + strait_topk_index_bytes(x.cols)));
    unsigned char *bytes = packed.data;
    const strait_topk_row to = {bytes, bytes + x.rows * keep * 2, keep, params};
    for (int64_t n = 0; n < x.rows; n++)
        strait_topk_pack(&to, strait_cpu_f32(x) + n * x.cols, x.cols, n);
    return STRAIT_OK;
}

static strait_err topk_restore(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, int64_t keep) {
    (void)s;
    assert(strait_tensor_bytes(packed) ==
           (size_t)(x.rows * keep) * (2 + strait_topk_index_bytes(x.cols)));
    unsigned char *bytes = packed.data;
    const strait_topk_row from = {bytes, bytes + x.rows * keep * 2, keep, {0}};
    for (int64_t n = 0; n < x.rows; n++) {
        double sums[3];
        strait_topk_restore(&from, strait_cpu_f32(x) + n * x.cols, x.cols, n, sums);
        strait_payload_add_stats(stats, n, sums);
    }
    return STRAIT_OK;
}

/* The fast transform: log2(tile) rounds of butterflies, steps 1, 2, 4, ... Every implementation
 * uses this order, so that all give the same bits. */
static strait_err hadamard(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t tile) {
    (void)s;
    assert(strait_cpu_same_shape(y, x) && tile > 0 && (tile & (tile - 1)) == 0);
    assert(x.cols % tile == 0);
    if (y.data != x.data) memcpy(y.data, x.data, strait_tensor_bytes(x));
    const float norm = 1.0f / sqrtf((float)tile);
    for (int64_t first = 0; first < strait_cpu_count(y); first += tile) {
        float *v = strait_cpu_f32(y) + first;
        for (int64_t step = 1; step < tile; step *= 2)
            for (int64_t i = 0; i < tile; i++) {
                if (i & step) continue;
                const float a = v[i], b = v[i + step];
                v[i] = a + b;
                v[i + step] = a - b;
            }
        for (int64_t i = 0; i < tile; i++)
            v[i] *= norm;
    }
    return STRAIT_OK;
}

static double column_dot(strait_tensor q, int64_t a, int64_t b) {
    const float *v = strait_cpu_f32(q);
    double sum = 0;
    for (int64_t n = 0; n < q.rows; n++)
        sum += (double)v[n * q.cols + a] * (double)v[n * q.cols + b];
    return sum;
}

/* Column c of q becomes scale (column c - factor column b). */
static void subtract_column(strait_tensor q, int64_t c, int64_t b, double factor, double scale) {
    float *v = strait_cpu_f32(q);
    for (int64_t i = c, j = b; i < strait_cpu_count(q); i += q.cols, j += q.cols)
        v[i] = (float)(((double)v[i] - factor * (double)v[j]) * scale);
}

/* Gram-Schmidt. A column that loses almost all of its length depended on earlier columns and
 * becomes 0 rather than amplified noise. */
static strait_err orthonormalise(struct strait_stream *s, strait_tensor q) {
    (void)s;
    for (int64_t c = 0; c < q.cols; c++) {
        const double before = column_dot(q, c, c);
        for (int pass = 0; pass < 2; pass++) // the second removes what rounding left
            for (int64_t b = 0; b < c; b++)
                subtract_column(q, c, b, column_dot(q, c, b), 1);
        const double after = column_dot(q, c, c);
        const int is_independent = after > before * 1e-10 && after > 1e-60;
        subtract_column(q, c, c, 0, is_independent ? 1 / sqrt(after) : 0);
    }
    return STRAIT_OK;
}

void strait_ref_codec(struct strait_kernel_set *set) {
    set->topk.pack = topk_pack;
    set->topk.restore = topk_restore;
    set->hadamard.transform = hadamard;
    set->lowrank.orthonormalise = orthonormalise;
}
