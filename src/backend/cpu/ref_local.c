/* ref_local.c - what looks at the rows just before a row, and at some of its columns. */
#include "backend/cpu/cpu.h"

static void check_conv(strait_tensor x, strait_tensor w, int64_t seq_len) {
    assert(w.cols == x.cols && w.rows <= STRAIT_CONV_TAPS && x.rows % seq_len == 0);
    (void)x, (void)w, (void)seq_len;
}

static strait_err conv(struct strait_stream *s, strait_tensor y, strait_tensor x, strait_tensor w,
                       int64_t seq_len) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    check_conv(x, w, seq_len);
    const int64_t cols = x.cols;
    const float *from = strait_cpu_f32(x);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t place = i / cols % seq_len;
        double sum = (double)from[i];
        for (int64_t j = 0; j < w.rows && j <= place; j++)
            sum += (double)strait_cpu_f32(w)[j * cols + i % cols] * (double)from[i - j * cols];
        strait_cpu_f32(y)[i] = (float)sum;
    }
    return STRAIT_OK;
}

static strait_err conv_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                            strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(strait_cpu_same_shape(d_w, w));
    check_conv(x, w, seq_len);
    const int64_t cols = x.cols;
    const float *d = strait_cpu_f32(d_y);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t left = seq_len - i / cols % seq_len; // rows of the sequence from here on
        double sum = (double)d[i];
        for (int64_t j = 0; j < w.rows && j < left; j++)
            sum += (double)strait_cpu_f32(w)[j * cols + i % cols] * (double)d[i + j * cols];
        strait_cpu_f32(d_x)[i] = (float)sum;
    }
    for (int64_t at = 0; at < strait_cpu_count(w); at++) {
        const int64_t j = at / cols, c = at % cols;
        double sum = 0;
        for (int64_t n = 0; n < x.rows; n++)
            if (n % seq_len >= j)
                sum += (double)d[n * cols + c] * (double)strait_cpu_f32(x)[(n - j) * cols + c];
        strait_cpu_f32(d_w)[at] += (float)sum;
    }
    return STRAIT_OK;
}

static strait_err add_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    (void)s;
    assert(y.rows == x.rows && first >= 0 && first + x.cols <= y.cols);
    for (int64_t i = 0; i < strait_cpu_count(x); i++)
        strait_cpu_f32(y)[i / x.cols * y.cols + first + i % x.cols] += strait_cpu_f32(x)[i];
    return STRAIT_OK;
}

static strait_err cut_cols(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t first) {
    (void)s;
    assert(y.rows == x.rows && first >= 0 && first + y.cols <= x.cols);
    for (int64_t n = 0; n < y.rows; n++)
        memcpy(strait_cpu_f32(y) + n * y.cols, strait_cpu_f32(x) + n * x.cols + first,
               (size_t)y.cols * sizeof(float));
    return STRAIT_OK;
}

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

void strait_ref_local(struct strait_kernel_set *set) {
    set->conv.forward = conv;
    set->conv.back = conv_back;
    set->base.add_cols = add_cols;
    set->base.cut_cols = cut_cols;
    set->autoencoder.window = window;
    set->autoencoder.window_back = window_back;
}
