/* ref_rotate.c - norm and rotation of queries and keys. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Pairs (i, i + half) of `in` turn by the angles of one position; `out` may be `in`. A negative
 * `way` turns back. */
static void turn(float *out, const float *in, const float *cos, const float *sin, int half,
                 float way) {
    for (int i = 0; i < half; i++) {
        const float a = in[i], b = in[i + half];
        out[i] = a * cos[i] - way * b * sin[i];
        out[i + half] = b * cos[i] + way * a * sin[i];
    }
}

static float norm_head(float *y, const float *x, const float *gain, int dim, float epsilon) {
    double squares = 0;
    for (int i = 0; i < dim; i++)
        squares += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(squares / dim + (double)epsilon);
    for (int i = 0; i < dim; i++)
        y[i] = (float)((double)x[i] * scale * (gain ? (double)gain[i] : 1));
    return (float)scale;
}

static strait_err rotate(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_tensor gain, strait_tensor cos, strait_tensor sin,
                         strait_heads heads, float epsilon) {
    (void)s;
    const int dim = heads.head_dim, half = dim / 2, n_heads = heads.n_query + heads.n_key;
    assert(dim % 2 == 0 && x.cols == strait_cpu_qkv_cols(heads) && strait_cpu_same_shape(y, x));
    assert(cos.cols == half && cos.rows >= heads.seq_len && strait_cpu_same_shape(cos, sin));
    for (int64_t n = 0; n < x.rows; n++) {
        const float *in = strait_cpu_f32(x) + n * x.cols;
        float *out = strait_cpu_f32(y) + n * x.cols;
        const int64_t angle = n % heads.seq_len * half;
        for (int h = 0; h < n_heads; h++) {
            const float *from = in + h * dim;
            if (rstd.data != NULL) {
                const float *g = strait_cpu_f32(gain);
                if (g != NULL && h >= heads.n_query) g += dim;
                strait_cpu_f32(rstd)[n * n_heads + h] = norm_head(out + h * dim, from, g, dim,
                                                                  epsilon);
                from = out + h * dim;
            }
            turn(out + h * dim, from, strait_cpu_f32(cos) + angle, strait_cpu_f32(sin) + angle,
                 half, 1);
        }
        if (out != in)
            memcpy(out + n_heads * dim, in + n_heads * dim,
                   (size_t)(heads.n_key * dim) * sizeof(float));
    }
    return STRAIT_OK;
}

/* The gradient through the norm of one head, in place; the part of the gain goes to d_gain. */
static void norm_head_back(float *d, float *d_gain, const float *x, const float *gain, double scale,
                           int dim) {
    double dot = 0;
    for (int i = 0; i < dim; i++)
        dot += (double)d[i] * (gain ? (double)gain[i] : 1) * (double)x[i] * scale;
    dot /= dim;
    for (int i = 0; i < dim; i++) {
        const double normed = (double)x[i] * scale;
        const double d_normed = (double)d[i] * (gain ? (double)gain[i] : 1);
        if (gain != NULL) d_gain[i] += (float)((double)d[i] * normed);
        d[i] = (float)(scale * (d_normed - normed * dot));
    }
}

static strait_err rotate_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_tensor gain, strait_tensor cos, strait_tensor sin,
                              strait_heads heads) {
    (void)s;
    const int dim = heads.head_dim, half = dim / 2, n_heads = heads.n_query + heads.n_key;
    assert(d_x.cols == strait_cpu_qkv_cols(heads) && strait_cpu_same_shape(d_x, d_y));
    assert((x.data == NULL) == (rstd.data == NULL));
    assert(gain.data == NULL || d_gain.data != NULL);
    for (int64_t n = 0; n < d_x.rows; n++) {
        const float *from = strait_cpu_f32(d_y) + n * d_x.cols;
        float *to = strait_cpu_f32(d_x) + n * d_x.cols;
        const int64_t angle = n % heads.seq_len * half;
        for (int h = 0; h < n_heads; h++) {
            turn(to + h * dim, from + h * dim, strait_cpu_f32(cos) + angle,
                 strait_cpu_f32(sin) + angle, half, -1);
            if (rstd.data == NULL) continue;
            const int which = gain.data != NULL && h >= heads.n_query ? dim : 0;
            norm_head_back(to + h * dim, gain.data ? strait_cpu_f32(d_gain) + which : NULL,
                           strait_cpu_f32(x) + n * d_x.cols + h * dim,
                           gain.data ? strait_cpu_f32(gain) + which : NULL,
                           (double)strait_cpu_f32(rstd)[n * n_heads + h], dim);
        }
        if (to != from)
            memcpy(to + n_heads * dim, from + n_heads * dim,
                   (size_t)(heads.n_key * dim) * sizeof(float));
    }
    return STRAIT_OK;
}

void strait_ref_rotate(struct strait_kernels *k) {
    k->rotate = rotate;
    k->rotate_back = rotate_back;
}
