/* ref_mlp.c - activation functions: gated silu (swiglu), squared relu, relu and silu. */
#include "backend/cpu/cpu.h"

#include <math.h>

/* Where exp overflows the result is 1 / infinity, which is 0 as it should be. */
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static strait_err swiglu(struct strait_stream *s, strait_tensor y, strait_tensor gate_up) {
    (void)s;
    assert(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows);
    for (int64_t n = 0; n < y.rows; n++) {
        const float *gate = strait_cpu_f32(gate_up) + n * 2 * y.cols, *up = gate + y.cols;
        for (int64_t f = 0; f < y.cols; f++) {
            const double g = (double)gate[f];
            strait_cpu_f32(y)[n * y.cols + f] = (float)(g * sigmoid(g) * (double)up[f]);
        }
    }
    return STRAIT_OK;
}

/* With g the gate, u the up half and sig = sigmoid(g):
 *   d_g = d u sig (1 + g (1 - sig)),  d_u = d g sig
 * Everything is read before it is written, because outputs may replace inputs. */
static strait_err swiglu_back(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up) {
    (void)s;
    assert(strait_cpu_same_shape(d_gate_up, gate_up) && gate_up.cols == 2 * d_y.cols);
    assert(y.data == NULL || strait_cpu_same_shape(y, d_y));
    const int64_t width = d_y.cols;
    for (int64_t n = 0; n < d_y.rows; n++) {
        const float *gate = strait_cpu_f32(gate_up) + n * 2 * width, *up = gate + width;
        float *d_gate = strait_cpu_f32(d_gate_up) + n * 2 * width, *d_up = d_gate + width;
        for (int64_t f = 0; f < width; f++) {
            const double d = (double)strait_cpu_f32(d_y)[n * width + f];
            const double g = (double)gate[f], u = (double)up[f], sig = sigmoid(g);
            if (y.data != NULL) strait_cpu_f32(y)[n * width + f] = (float)(g * sig * u);
            d_gate[f] = (float)(d * u * sig * (1 + g * (1 - sig)));
            d_up[f] = (float)(d * g * sig);
        }
    }
    return STRAIT_OK;
}

/* v < 0 is false for NaN, so a NaN passes through instead of becoming 0. */
static strait_err relu2(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const float v = strait_cpu_f32(x)[i];
        strait_cpu_f32(y)[i] = v < 0 ? 0 : v * v;
    }
    return STRAIT_OK;
}

/* y is recomputed on request, which saves keeping it from the forward pass. */
static strait_err relu2_back(struct strait_stream *s, strait_tensor d_x, strait_tensor y,
                             strait_tensor d_y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    assert(y.data == NULL || strait_cpu_same_shape(y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const float v = strait_cpu_f32(x)[i];
        strait_cpu_f32(d_x)[i] = v < 0 ? 0 : 2 * v * strait_cpu_f32(d_y)[i];
        if (y.data != NULL) strait_cpu_f32(y)[i] = v < 0 ? 0 : v * v;
    }
    return STRAIT_OK;
}

/* A NaN passes through, as in relu2. */
static strait_err relu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const float v = strait_cpu_f32(x)[i];
        strait_cpu_f32(y)[i] = v < 0 ? 0 : v;
    }
    return STRAIT_OK;
}

/* x <= 0 includes 0: the gradient at the kink is 0. */
static strait_err relu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++)
        strait_cpu_f32(d_x)[i] = strait_cpu_f32(x)[i] <= 0 ? 0 : strait_cpu_f32(d_y)[i];
    return STRAIT_OK;
}

static strait_err silu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const double value = (double)strait_cpu_f32(x)[i];
        strait_cpu_f32(y)[i] = (float)(value * sigmoid(value));
    }
    return STRAIT_OK;
}

/* The slope is recomputed from x, so that the forward pass keeps nothing but its input. */
static strait_err silu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(d_x, x) && strait_cpu_same_shape(d_y, x));
    for (int64_t i = 0; i < strait_cpu_count(x); i++) {
        const double value = (double)strait_cpu_f32(x)[i], gate = sigmoid(value);
        const double slope = gate * (1 + value * (1 - gate));
        strait_cpu_f32(d_x)[i] = (float)((double)strait_cpu_f32(d_y)[i] * slope);
    }
    return STRAIT_OK;
}

void strait_ref_mlp(struct strait_kernel_set *set) {
    set->base.swiglu = swiglu;
    set->base.swiglu_back = swiglu_back;
    set->base.relu2 = relu2;
    set->base.relu2_back = relu2_back;
    set->base.relu = relu;
    set->base.relu_back = relu_back;
    set->base.silu = silu;
    set->base.silu_back = silu_back;
}
