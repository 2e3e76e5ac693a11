/* ref_rotate.c - rotary position embedding of queries and keys, and the optional norm before it. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Rotates pairs (i, i + half) of `in` by the angles of one position; `out` may be `in`. A direction
 * of -1 rotates back, which is the gradient. */
static void rotate_pairs(float *out, const float *in, const float *cos, const float *sin,
                         int64_t half, float direction) {
    for (int64_t i = 0; i < half; i++) {
        const float a = in[i], b = in[i + half];
        out[i] = a * cos[i] - direction * b * sin[i];
        out[i + half] = b * cos[i] + direction * a * sin[i];
    }
}

/* Returns the factor, which the backward pass needs again. */
static float norm_head(float *y, const float *x, const float *gain, int64_t dim, float epsilon) {
    double squares = 0;
    for (int64_t i = 0; i < dim; i++)
        squares += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(squares / (double)dim + (double)epsilon);
    for (int64_t i = 0; i < dim; i++)
        y[i] = (float)((double)x[i] * scale * (gain ? (double)gain[i] : 1));
    return (float)scale;
}

/* The gain of head h, counted over queries and then keys; NULL without gains. */
static const float *gain_of(const strait_rotate_params *params, int h) {
    const float *gain = strait_cpu_f32(params->gain);
    return gain != NULL && h >= params->heads.n_query ? gain + params->heads.head_dim : gain;
}

/* Rotates one head of row n; other arguments as above. */
static void rotate_head(float *out, const float *in, const strait_rotate_params *params, int64_t n,
                        float direction) {
    const int64_t half = params->heads.head_dim / 2, angle = n % params->heads.seq_len * half;
    rotate_pairs(out, in, strait_cpu_f32(params->cos) + angle, strait_cpu_f32(params->sin) + angle,
                 half, direction);
}

/* Values are not rotated, only copied: positions concern scores alone. */
static strait_err rotate(struct strait_stream *s, strait_tensor y, strait_tensor rstd,
                         strait_tensor x, strait_rotate_params params) {
    (void)s;
    const strait_heads heads = params.heads;
    const int64_t dim = heads.head_dim;
    const int n_heads = heads.n_query + heads.n_key;
    assert(dim % 2 == 0 && x.cols == strait_cpu_qkv_cols(heads) && strait_cpu_same_shape(y, x));
    assert(params.cos.cols == dim / 2 && params.cos.rows >= heads.seq_len);
    assert(strait_cpu_same_shape(params.cos, params.sin));
    for (int64_t n = 0; n < x.rows; n++) {
        const float *in = strait_cpu_f32(x) + n * x.cols;
        float *out = strait_cpu_f32(y) + n * x.cols;
        for (int h = 0; h < n_heads; h++) {
            const float *from = in + h * dim;
            if (rstd.data != NULL) {
                strait_cpu_f32(rstd)[n * n_heads + h] = norm_head(
                    out + h * dim, from, gain_of(&params, h), dim, params.epsilon);
                from = out + h * dim;
            }
            rotate_head(out + h * dim, from, &params, n, 1);
        }
        if (out != in)
            memcpy(out + n_heads * dim, in + n_heads * dim,
                   (size_t)(heads.n_key * dim) * sizeof(float));
    }
    return STRAIT_OK;
}

/* The gradient through the norm of one head, in place. */
static void norm_head_back(float *d, const float *x, const float *gain, double scale, int64_t dim) {
    double dot = 0;
    for (int64_t i = 0; i < dim; i++)
        dot += (double)d[i] * (gain ? (double)gain[i] : 1) * (double)x[i] * scale;
    dot /= (double)dim;
    for (int64_t i = 0; i < dim; i++) {
        const double d_normed = (double)d[i] * (gain ? (double)gain[i] : 1);
        d[i] = (float)(scale * (d_normed - (double)x[i] * scale * dot));
    }
}

/* Adds the contribution of heads first to end - 1 to d_gain[0..dim). d holds their gradients after
 * rotating back. */
static void gain_back(float *d_gain, const float *d, strait_tensor x, strait_tensor rstd, int first,
                      int end, int64_t dim) {
    for (int64_t i = 0; i < dim; i++) {
        double sum = 0;
        for (int64_t n = 0; n < x.rows; n++)
            for (int h = first; h < end; h++) {
                const int64_t at = n * x.cols + h * dim + i;
                sum += (double)d[at] * (double)strait_cpu_f32(x)[at] *
                       (double)strait_cpu_f32(rstd)[n * rstd.cols + h];
            }
        d_gain[i] += (float)sum;
    }
}

static strait_err rotate_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                              strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                              strait_rotate_params params) {
    (void)s;
    const strait_heads heads = params.heads;
    const int64_t dim = heads.head_dim;
    const int n_heads = heads.n_query + heads.n_key;
    assert(d_x.cols == strait_cpu_qkv_cols(heads) && strait_cpu_same_shape(d_x, d_y));
    assert((x.data == NULL) == (rstd.data == NULL));
    assert(params.gain.data == NULL || d_gain.data != NULL);
    if (d_x.data != d_y.data) memcpy(d_x.data, d_y.data, strait_tensor_bytes(d_y));
    float *d = strait_cpu_f32(d_x);
    for (int64_t n = 0; n < d_x.rows; n++)
        for (int h = 0; h < n_heads; h++) {
            const int64_t at = n * d_x.cols + h * dim;
            rotate_head(d + at, d + at, &params, n, -1);
        }
    if (rstd.data == NULL) return STRAIT_OK;
    /* Before the norm's own gradient, which overwrites d. */
    if (params.gain.data != NULL) {
        gain_back(strait_cpu_f32(d_gain), d, x, rstd, 0, heads.n_query, dim);
        gain_back(strait_cpu_f32(d_gain) + dim, d, x, rstd, heads.n_query, n_heads, dim);
    }
    for (int64_t n = 0; n < d_x.rows; n++)
        for (int h = 0; h < n_heads; h++) {
            const int64_t at = n * d_x.cols + h * dim;
            norm_head_back(d + at, strait_cpu_f32(x) + at, gain_of(&params, h),
                           (double)strait_cpu_f32(rstd)[n * n_heads + h], dim);
        }
    return STRAIT_OK;
}

void strait_ref_rotate(struct strait_kernel_set *set) {
    set->base.rotate = rotate;
    set->base.rotate_back = rotate_back;
}
