/* ref_conv.c - causal convolution over the rows of a sequence, each column by itself. */
#include "backend/cpu/cpu.h"

/* Sequences are stacked, so their length must divide the rows. */
static void check_conv(strait_tensor x, strait_tensor w, int64_t seq_len) {
    assert(w.cols == x.cols && w.rows <= STRAIT_CONV_TAPS && x.rows % seq_len == 0);
    (void)x, (void)w, (void)seq_len;
}

/* y_i = x_i + sum over j of w_j x_{i-j}; taps that reach before the sequence are left out. */
static strait_err conv(struct strait_stream *s, strait_tensor y, strait_tensor x, strait_tensor w,
                       int64_t seq_len) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    check_conv(x, w, seq_len);
    const int64_t cols = x.cols;
    const float *from = strait_cpu_f32(x);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t position = i / cols % seq_len;
        double sum = (double)from[i];
        for (int64_t j = 0; j < w.rows && j <= position; j++)
            sum += (double)strait_cpu_f32(w)[j * cols + i % cols] * (double)from[i - j * cols];
        strait_cpu_f32(y)[i] = (float)sum;
    }
    return STRAIT_OK;
}

/* d_x_i = d_y_i + sum over j of w_j d_y_{i+j}; d_w_j += sum over i of d_y_i x_{i-j}. */
static strait_err conv_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_w,
                            strait_tensor d_y, strait_tensor x, strait_tensor w, int64_t seq_len) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(strait_cpu_same_shape(d_w, w));
    check_conv(x, w, seq_len);
    const int64_t cols = x.cols;
    const float *d = strait_cpu_f32(d_y);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t left = seq_len - i / cols % seq_len; // rows until the sequence ends
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

/* y_i = x_i + sum over j of w_j x_{i-j}, earlier inputs from the ring of the row's sequence. */
static strait_err conv_cached(struct strait_stream *s, strait_tensor y, strait_tensor ring,
                              strait_tensor x, strait_tensor w, strait_cached_rows at) {
    (void)s;
    assert(strait_cpu_same_shape(y, x) && w.cols == x.cols && w.rows <= STRAIT_CONV_TAPS);
    strait_cpu_keep_inputs(ring, x, at);
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const int64_t n = i / x.cols, c = i % x.cols, position = strait_cpu_position(at, n);
        const int64_t first = strait_cpu_sequence(at, n) * STRAIT_CONV_RING;
        double sum = (double)strait_cpu_f32(x)[i];
        if (first < 0) continue;
        for (int64_t j = 0; j < w.rows && j <= position; j++)
            sum += (double)strait_cpu_f32(w)[j * x.cols + c] *
                   (double)strait_cpu_f32(
                       ring)[(first + (position - j) % STRAIT_CONV_RING) * x.cols + c];
        strait_cpu_f32(y)[i] = (float)sum;
    }
    return STRAIT_OK;
}

void strait_ref_conv(struct strait_kernel_set *set) {
    set->conv.forward = conv;
    set->conv.back = conv_back;
    set->conv.cached = conv_cached;
}
