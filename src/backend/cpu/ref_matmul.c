/* ref_matmul.c - matmul, sum_squares, normalise: sums in double precision, from the first value to
 * the last. */
#include "backend/cpu/cpu.h"

#include <math.h>

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params) {
    (void)s;
    const int64_t inner = params.transpose_a ? a.rows : a.cols;
    assert(inner == (params.transpose_b ? b.cols : b.rows));
    assert(y.rows == (params.transpose_a ? a.cols : a.rows));
    assert(y.cols == (params.transpose_b ? b.rows : b.cols));
    /* Strides replace transposes: element (i, k) of op(a) is left[i * a_row + k * a_col]. */
    const int64_t a_row = params.transpose_a ? 1 : a.cols, a_col = params.transpose_a ? a.cols : 1;
    const int64_t b_row = params.transpose_b ? 1 : b.cols, b_col = params.transpose_b ? b.cols : 1;
    const float *left = strait_cpu_f32(a), *right = strait_cpu_f32(b);
    float *to = strait_cpu_f32(y);
    for (int64_t i = 0; i < y.rows; i++) {
        for (int64_t j = 0; j < y.cols; j++, to++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += (double)left[i * a_row + k * a_col] * (double)right[k * b_row + j * b_col];
            sum *= (double)params.alpha;
            /* With beta 0 y is not read: it may be uninitialised. */
            if (params.beta != 0.0f) sum += (double)params.beta * (double)*to;
            *to = (float)sum;
        }
    }
    return STRAIT_OK;
}

/* The total stays a tensor, because on other devices it never leaves the device. */
static strait_err sum_squares(struct strait_stream *s, strait_tensor total, strait_tensor x) {
    (void)s;
    const float *from = strait_cpu_f32(x);
    double sum = 0;
    for (int64_t i = 0; i < strait_cpu_count(x); i++)
        sum += (double)from[i] * (double)from[i];
    strait_cpu_f32(total)[0] = (float)sum;
    return STRAIT_OK;
}

static strait_err normalise(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    const float factor = 1.0f / (sqrtf(strait_cpu_f32(total)[0]) + epsilon);
    const float *from = strait_cpu_f32(x);
    float *to = strait_cpu_f32(y);
    for (int64_t i = 0; i < strait_cpu_count(x); i++)
        to[i] = from[i] * factor;
    return STRAIT_OK;
}

void strait_ref_matmul(struct strait_kernel_set *set) {
    set->base.matmul = matmul;
    set->base.sum_squares = sum_squares;
    set->base.normalise = normalise;
}
