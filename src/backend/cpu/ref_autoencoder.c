/* ref_autoencoder.c - kernels of trained codecs: windows of codes, norms, silu, and gradients
 * through both at once. */
#include "backend/cpu/cpu.h"

#include <math.h>

/* The norm is the backend's own rmsnorm, so that both give the same bits. */
static strait_err subtract_norm(struct strait_stream *s, strait_tensor delta, strait_tensor normed,
                                strait_tensor rstd, strait_tensor y, strait_tensor x,
                                float epsilon) {
    const strait_tensor absent = {0};
    assert(delta.rows == y.rows && delta.cols >= y.cols && strait_cpu_same_shape(x, y));
    for (int64_t i = 0; i < strait_cpu_count(y); i++)
        strait_cpu_put(delta, i / y.cols * delta.cols + i % y.cols,
                       strait_cpu_get(y, i) - strait_cpu_get(x, i));
    if (normed.data == NULL) return STRAIT_OK;
    return s->backend->kernels->rmsnorm(s, normed, absent, rstd, y, absent,
                                        (strait_norm_params){.epsilon = epsilon});
}

/* Shapes are the caller's duty; asserts find a wrong caller in tests. */
static void check_window(strait_tensor both, strait_tensor normeds, strait_tensor z,
                         strait_window_params params) {
    assert(params.keep <= z.cols && both.rows == z.rows && normeds.rows == z.rows);
    assert(normeds.cols == params.taps * z.cols && both.cols >= normeds.cols);
    assert(z.rows % params.seq_len == 0);
    (void)both, (void)normeds, (void)z, (void)params;
}

/* The norm is per code, so each code is measured once although several windows contain it. */
static strait_err window_norm(struct strait_stream *s, strait_tensor both, strait_tensor normeds,
                              strait_tensor rstd, strait_tensor z, strait_window_params params) {
    (void)s;
    check_window(both, normeds, z, params);
    for (int64_t n = 0; n < z.rows; n++) {
        const float *row = strait_cpu_f32(z) + n * z.cols;
        double squares = 0;
        for (int64_t c = 0; c < params.keep; c++)
            squares += (double)row[c] * (double)row[c];
        strait_cpu_f32(
            rstd)[n] = (float)(1 / sqrt(squares / (double)params.keep + (double)params.epsilon));
    }
    for (int64_t i = 0; i < strait_cpu_count(normeds); i++) {
        const int64_t n = i / normeds.cols, j = i % normeds.cols / z.cols, c = i % z.cols;
        /* Tap j reads token n - j, which must belong to the same sequence. */
        const int is_valid = j <= n % params.seq_len && c < params.keep;
        const float value = is_valid ? strait_cpu_f32(z)[(n - j) * z.cols + c] : 0.0f;
        const float scale = is_valid ? strait_cpu_f32(rstd)[n - j] : 0.0f;
        strait_cpu_put(both, n * both.cols + i % normeds.cols, value);
        strait_cpu_put(normeds, i, value * scale);
    }
    return STRAIT_OK;
}

/* The gradient of value c of code n from every window that holds it: tap j of token n + j. */
static double gathered(strait_tensor t, strait_tensor z, int64_t n, int64_t c,
                       strait_window_params params) {
    double sum = 0;
    for (int64_t j = 0; j < params.taps && n % params.seq_len + j < params.seq_len; j++)
        sum += (double)strait_cpu_get(t, (n + j) * t.cols + j * z.cols + c);
    return sum;
}

static strait_err window_norm_back(struct strait_stream *s, strait_tensor d_z, strait_tensor d_both,
                                   strait_tensor d_normeds, strait_tensor z, strait_tensor rstd,
                                   strait_window_params params) {
    (void)s;
    check_window(d_both, d_normeds, z, params);
    assert(strait_cpu_same_shape(d_z, z));
    /* d_z = d_both + rstd (d - z rstd (d . z rstd) / keep), d the gathered d_normeds. */
    for (int64_t n = 0; n < z.rows; n++) {
        const float *row = strait_cpu_f32(z) + n * z.cols;
        const double scale = (double)strait_cpu_f32(rstd)[n];
        double dot = 0;
        for (int64_t c = 0; c < params.keep; c++)
            dot += gathered(d_normeds, z, n, c, params) * (double)row[c] * scale;
        dot /= (double)params.keep;
        for (int64_t c = 0; c < z.cols; c++) {
            const double through = c < params.keep ? gathered(d_normeds, z, n, c, params) -
                                                         (double)row[c] * scale * dot
                                                   : 0;
            const double direct = c < params.keep ? gathered(d_both, z, n, c, params) : 0;
            strait_cpu_f32(d_z)[n * z.cols + c] = (float)(direct + scale * through);
        }
    }
    return STRAIT_OK;
}

/* In double precision, like every sum of the reference loops. */
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))) */
static double silu_slope(double x) {
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

/* Writes into a part of wider rows, so that a following product reads both parts as one matrix. */
static strait_err silu_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            int64_t first, strait_tensor beside) {
    (void)s;
    assert(y.rows == x.rows && first >= 0 && first + x.cols + beside.cols <= y.cols);
    assert(beside.data == NULL || beside.rows == y.rows);
    for (int64_t n = 0; n < y.rows; n++) {
        const int64_t to = n * y.cols + first;
        for (int64_t c = 0; c < x.cols; c++) {
            const double value = (double)strait_cpu_get(x, n * x.cols + c);
            strait_cpu_put(y, to + c, (float)(value * sigmoid(value)));
        }
        for (int64_t c = 0; c < beside.cols; c++)
            strait_cpu_put(y, to + x.cols + c, strait_cpu_get(beside, n * beside.cols + c));
    }
    return STRAIT_OK;
}

/* Only the columns that silu wrote have a gradient through it. */
static strait_err silu_cols_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                                 strait_tensor x, int64_t first) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && d_y.rows == x.rows && first + x.cols <= d_y.cols);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const float d = strait_cpu_get(d_y, i / x.cols * d_y.cols + first + i % x.cols);
        strait_cpu_put(d_x, i, (float)((double)d * silu_slope((double)strait_cpu_get(x, i))));
    }
    return STRAIT_OK;
}

/* d_a and scaled first, with a . d_a on the way; that dot product is what the norm's own gradient
 * needs, because a = n W' makes n . d_n equal to a . d_a. */
static strait_err norm_silu_back(struct strait_stream *s, const strait_norm_silu_grads *at) {
    (void)s;
    const int64_t cols = at->a.cols;
    const int adds = at->plus.data != NULL;
    assert(strait_cpu_same_shape(at->d_a, at->a) && strait_cpu_same_shape(at->d_h, at->a));
    assert(strait_cpu_same_shape(at->scaled, at->a));
    assert(strait_cpu_same_shape(at->d_y, at->n) && at->n.rows == at->a.rows);
    assert(!adds || strait_cpu_same_shape(at->plus, at->n));
    for (int64_t n = 0; n < at->a.rows; n++) {
        const double scale = (double)strait_cpu_f32(at->rstd)[n];
        double dot = 0;
        for (int64_t c = 0; c < cols; c++) {
            const double a = (double)strait_cpu_get(at->a, n * cols + c);
            const double d_a = (double)strait_cpu_get(at->d_h, n * cols + c) * silu_slope(a);
            strait_cpu_put(at->d_a, n * cols + c, (float)d_a);
            strait_cpu_put(at->scaled, n * cols + c, (float)(scale * d_a));
            dot += a * d_a;
        }
        const double shift = -scale * dot / (double)at->n.cols;
        for (int64_t i = n * at->n.cols; i < (n + 1) * at->n.cols; i++)
            strait_cpu_put(at->d_y, i,
                           (float)(shift * (double)strait_cpu_get(at->n, i) +
                                   (adds ? (double)strait_cpu_get(at->plus, i) : 0.0)));
    }
    return STRAIT_OK;
}

/* y_i = [x_i, x_{i-1}, ...]; rows before the start of the sequence are zeros. */
static strait_err window(struct strait_stream *s, strait_tensor y, strait_tensor x,
                         int64_t seq_len) {
    (void)s;
    assert(y.rows == x.rows && y.cols % x.cols == 0 && x.rows % seq_len == 0);
    const int64_t taps = y.cols / x.cols;
    const size_t bytes = (size_t)x.cols * sizeof(float);
    for (int64_t n = 0; n < x.rows; n++) {
        for (int64_t j = 0; j < taps; j++) {
            float *to = strait_cpu_f32(y) + n * y.cols + j * x.cols;
            if (j <= n % seq_len)
                memcpy(to, strait_cpu_f32(x) + (n - j) * x.cols, bytes);
            else
                memset(to, 0, bytes);
        }
    }
    return STRAIT_OK;
}

/* d_x_n = sum over j of tap j of d_y_{n+j}, from the smallest j: the order fixes the bits. */
static strait_err window_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                              int64_t seq_len) {
    (void)s;
    assert(d_y.rows == d_x.rows && d_y.cols % d_x.cols == 0 && d_x.rows % seq_len == 0);
    const int64_t taps = d_y.cols / d_x.cols;
    for (int64_t i = 0; i < strait_cpu_count(d_x); i++) {
        const int64_t n = i / d_x.cols, c = i % d_x.cols;
        double sum = 0;
        for (int64_t j = 0; j < taps && n % seq_len + j < seq_len; j++)
            sum += (double)strait_cpu_f32(d_y)[(n + j) * d_y.cols + j * d_x.cols + c];
        strait_cpu_f32(d_x)[i] = (float)sum;
    }
    return STRAIT_OK;
}

void strait_ref_autoencoder(struct strait_kernel_set *set) {
    set->autoencoder.window = window;
    set->autoencoder.window_back = window_back;
    set->autoencoder.subtract_norm = subtract_norm;
    set->autoencoder.window_norm = window_norm;
    set->autoencoder.window_norm_back = window_norm_back;
    set->autoencoder.silu_cols = silu_cols;
    set->autoencoder.silu_cols_back = silu_cols_back;
    set->autoencoder.norm_silu_back = norm_silu_back;
}
