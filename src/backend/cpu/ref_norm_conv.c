/* ref_norm_conv.c - a norm and the convolution after it, without a tensor between them: the
 * definition. A cpu runs the two kernels one after the other instead. */
#include "backend/cpu/cpu.h"

/* Value (row, col) of b, the norm's output, rounded to the type of x. */
static double norm_at(strait_tensor x, strait_tensor rstd, const strait_norm_conv_params *p,
                      int64_t row, int64_t col) {
    const float value = strait_cpu_get(x, row * x.cols + col) * strait_cpu_f32(rstd)[row] *
                        strait_cpu_f32(p->gain)[col];
    return (double)(x.dtype == STRAIT_BF16 ? strait_cpu_widen(strait_cpu_round(value)) : value);
}

static double tap(const strait_norm_conv_params *p, int64_t j, int64_t col) {
    return (double)strait_cpu_f32(p->taps)[j * p->taps.cols + col];
}

static void check_shapes(strait_tensor x, strait_tensor rstd, const strait_norm_conv_params *p) {
    assert(x.cols % STRAIT_NORM_CONV_MULTIPLE == 0 && x.cols <= STRAIT_NORM_CONV_WIDEST);
    assert(p->taps.cols == x.cols && p->gain.cols == x.cols && rstd.rows == x.rows);
    assert(x.rows % p->seq_len == 0);
}

static strait_err forward(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          const strait_norm_conv_params *p) {
    const struct strait_kernels *k = s->backend->kernels;
    check_shapes(x, rstd, p);
    assert(strait_cpu_same_shape(y, x) && (sum.data == NULL || sum.data != x.data));
    /* y receives the norm only for its rstd and sum, and is overwritten. */
    STRAIT_TRY(k->rmsnorm(s, y, sum, rstd, x, delta,
                          (strait_norm_params){.gain = p->gain, .epsilon = p->epsilon}));
    const strait_tensor in = delta.data != NULL ? sum : x;
    for (int64_t row = 0; row < x.rows; row++) {
        for (int64_t col = 0; col < x.cols; col++) {
            double all = norm_at(in, rstd, p, row, col);
            for (int64_t j = 0; j < p->taps.rows && j <= row % p->seq_len; j++)
                all += tap(p, j, col) * norm_at(in, rstd, p, row - j, col);
            strait_cpu_put(y, row * x.cols + col, (float)all);
        }
    }
    return STRAIT_OK;
}

/* Value (row, col) of the gradient of b, rounded to the type of d_y. */
static double grad_at(strait_tensor d_y, const strait_norm_conv_params *p, int64_t row,
                      int64_t col) {
    double all = (double)strait_cpu_get(d_y, row * d_y.cols + col);
    for (int64_t j = 0; j < p->taps.rows && row % p->seq_len + j < p->seq_len; j++)
        all += tap(p, j, col) * (double)strait_cpu_get(d_y, (row + j) * d_y.cols + col);
    return d_y.dtype == STRAIT_BF16 ? (double)strait_cpu_widen(strait_cpu_round((float)all)) : all;
}

static void add_tap_grads(strait_tensor d_w, strait_tensor d_y, strait_tensor x, strait_tensor rstd,
                          const strait_norm_conv_params *p) {
    for (int64_t j = 0; j < d_w.rows; j++)
        for (int64_t col = 0; col < d_w.cols; col++) {
            double all = 0;
            for (int64_t row = 0; row < x.rows; row++)
                if (row % p->seq_len + j < p->seq_len)
                    all += norm_at(x, rstd, p, row, col) *
                           (double)strait_cpu_get(d_y, (row + j) * x.cols + col);
            strait_cpu_add(d_w, j * d_w.cols + col, (float)all);
        }
}

static void add_gain_grads(strait_tensor d_gain, strait_tensor d_y, strait_tensor x,
                           strait_tensor rstd, const strait_norm_conv_params *p) {
    for (int64_t col = 0; col < x.cols; col++) {
        double all = 0;
        for (int64_t row = 0; row < x.rows; row++)
            all += grad_at(d_y, p, row, col) * (double)strait_cpu_get(x, row * x.cols + col) *
                   (double)strait_cpu_f32(rstd)[row];
        strait_cpu_add(d_gain, col, (float)all);
    }
}

static strait_err back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                       strait_tensor x, strait_tensor rstd, const strait_norm_conv_params *p) {
    (void)s;
    check_shapes(x, rstd, p);
    add_tap_grads(p->d_taps, d_y, x, rstd, p);
    add_gain_grads(p->d_gain, d_y, x, rstd, p);
    for (int64_t row = 0; row < x.rows; row++) {
        const double scale = (double)strait_cpu_f32(rstd)[row];
        double dot = 0;
        for (int64_t col = 0; col < x.cols; col++)
            dot += grad_at(d_y, p, row, col) * (double)strait_cpu_f32(p->gain)[col] *
                   (double)strait_cpu_get(x, row * x.cols + col);
        const double shift = dot * scale * scale / (double)x.cols;
        for (int64_t col = 0; col < x.cols; col++) {
            const double d = grad_at(d_y, p, row, col) * (double)strait_cpu_f32(p->gain)[col];
            const int64_t at = row * x.cols + col;
            strait_cpu_add(d_x, at, (float)(scale * (d - (double)strait_cpu_get(x, at) * shift)));
        }
    }
    return STRAIT_OK;
}

void strait_ref_norm_conv(struct strait_kernel_set *set) {
    set->norm_conv.forward = forward;
    set->norm_conv.back = back;
}
