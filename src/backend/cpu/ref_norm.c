/* ref_norm.c - root-mean-square norm, with the residual sum before it.
 *
 * Backward, with n = x rstd and g the gain:
 *   d_x += rstd (d_y g - n mean(d_y g n)),  d_gain += sum over rows of d_y n */
#include "backend/cpu/cpu.h"

#include <math.h>

static strait_err rmsnorm(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          strait_norm_params params) {
    (void)s;
    assert(strait_cpu_same_shape(y, x) && rstd.rows == x.rows);
    assert((sum.data == NULL) == (delta.data == NULL));
    const int64_t cols = x.cols;
    const float *gain = strait_cpu_f32(params.gain);
    for (int64_t n = 0; n < x.rows; n++) {
        const float *from = strait_cpu_f32(x) + n * cols;
        if (delta.data != NULL) {
            float *to = strait_cpu_f32(sum) + n * cols;
            for (int64_t c = 0; c < cols; c++)
                to[c] = from[c] + strait_cpu_f32(delta)[n * cols + c];
            from = to;
        }
        double squares = 0;
        for (int64_t c = 0; c < cols; c++)
            squares += (double)from[c] * (double)from[c];
        const double scale = 1 / sqrt(squares / (double)cols + (double)params.epsilon);
        strait_cpu_f32(rstd)[n] = (float)scale;
        for (int64_t c = 0; c < cols; c++) {
            const double g = gain != NULL ? (double)gain[c] : 1;
            strait_cpu_f32(y)[n * cols + c] = (float)((double)from[c] * scale * g);
        }
    }
    return STRAIT_OK;
}

static strait_err rmsnorm_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                               strait_tensor d_y, strait_tensor x, strait_tensor gain,
                               strait_tensor rstd) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(gain.data == NULL || d_gain.data != NULL);
    const int64_t cols = x.cols;
    const float *g = strait_cpu_f32(gain), *scales = strait_cpu_f32(rstd);
    const float *out = strait_cpu_f32(d_y), *in = strait_cpu_f32(x);
    for (int64_t n = 0; n < x.rows; n++) {
        const double scale = (double)scales[n];
        double dot = 0; // of the gradient with the normed row
        for (int64_t c = n * cols; c < (n + 1) * cols; c++)
            dot += (double)out[c] * (g ? (double)g[c - n * cols] : 1) * (double)in[c] * scale;
        dot /= (double)cols;
        for (int64_t c = n * cols; c < (n + 1) * cols; c++) {
            const double d_normed = (double)out[c] * (g ? (double)g[c - n * cols] : 1);
            strait_cpu_f32(d_x)[c] += (float)(scale * (d_normed - (double)in[c] * scale * dot));
        }
    }
    /* Column by column, so that the sum over rows has one order. */
    if (g == NULL) return STRAIT_OK;
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0;
        for (int64_t n = 0; n < x.rows; n++)
            sum += (double)out[n * cols + c] * (double)in[n * cols + c] * (double)scales[n];
        strait_cpu_f32(d_gain)[c] += (float)sum;
    }
    return STRAIT_OK;
}

void strait_ref_norm(struct strait_kernel_set *set) {
    set->base.rmsnorm = rmsnorm;
    set->base.rmsnorm_back = rmsnorm_back;
}
