/* mlp.c - activation functions: gated silu (swiglu), squared relu, relu and silu. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

/* One thread per output value reads both halves of a row, which are `cols` apart. */
static strait_err swiglu(struct strait_stream *s, strait_tensor y, strait_tensor gate_up) {
    assert(gate_up.cols == 2 * y.cols && gate_up.rows == y.rows && gate_up.dtype == y.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, gate_up.data, y.rows, y.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "swiglu"),
                              strait_cuda_over_rows(y.rows, y.cols, strait_cuda_wide(y.dtype)),
                              args);
}

/* y, if present, receives the output of the forward pass again, with the same bits. */
static strait_err swiglu_back(struct strait_stream *s, strait_tensor d_gate_up, strait_tensor y,
                              strait_tensor d_y, strait_tensor gate_up) {
    assert(y.data == NULL || (strait_cuda_same_shape(y, d_y) && y.dtype == d_y.dtype));
    assert(strait_cuda_same_shape(d_gate_up, gate_up) && gate_up.cols == 2 * d_y.cols);
    assert(d_gate_up.dtype == gate_up.dtype && d_y.dtype == gate_up.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_gate_up.data, y.data, d_y.data, gate_up.data,
                                                   d_y.rows, d_y.cols);
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(d_y.dtype, "swiglu_back"),
        strait_cuda_over_rows(d_y.rows, d_y.cols, strait_cuda_wide(d_y.dtype)), args);
}

/* Kernels y = f(x) by value. The whole tensor counts as one row, so that narrow rows do not waste
 * threads. */
static strait_err each(struct strait_stream *s, const char *kernel, strait_tensor y,
                       strait_tensor x) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype);
    int64_t rows = 1, cols = strait_cuda_count(x);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, rows, cols);
    return strait_cuda_launch(s, kernel,
                              strait_cuda_over_rows(rows, cols, strait_cuda_wide(x.dtype)), args);
}

/* Gradients are computed value by value, too, so the tensor again counts as one row. */
static strait_err each_back(struct strait_stream *s, const char *kernel, strait_tensor d_x,
                            strait_tensor d_y, strait_tensor x) {
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype);
    int64_t rows = 1, cols = strait_cuda_count(x);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, d_y.data, x.data, rows, cols);
    return strait_cuda_launch(s, kernel,
                              strait_cuda_over_rows(rows, cols, strait_cuda_wide(x.dtype)), args);
}

static strait_err relu2(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    return each(s, STRAIT_CUDA_OF(x.dtype, "relu2"), y, x);
}

/* y, if present, receives the output of the forward pass again, with the same bits. */
static strait_err relu2_back(struct strait_stream *s, strait_tensor d_x, strait_tensor y,
                             strait_tensor d_y, strait_tensor x) {
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(y.data == NULL || (strait_cuda_same_shape(y, x) && y.dtype == x.dtype));
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype);
    int64_t rows = 1, cols = strait_cuda_count(x);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, y.data, d_y.data, x.data, rows, cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "relu2_back"),
                              strait_cuda_over_rows(rows, cols, strait_cuda_wide(x.dtype)), args);
}

static strait_err relu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    return each(s, STRAIT_CUDA_OF(x.dtype, "relu"), y, x);
}

static strait_err relu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    return each_back(s, STRAIT_CUDA_OF(x.dtype, "relu_back"), d_x, d_y, x);
}

static strait_err silu(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    return each(s, STRAIT_CUDA_OF(x.dtype, "silu"), y, x);
}

static strait_err silu_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_y,
                            strait_tensor x) {
    return each_back(s, STRAIT_CUDA_OF(x.dtype, "silu_back"), d_x, d_y, x);
}

void strait_cuda_mlp(struct strait_kernel_set *set) {
    set->base.swiglu = swiglu;
    set->base.swiglu_back = swiglu_back;
    set->base.relu2 = relu2;
    set->base.relu2_back = relu2_back;
    set->base.relu = relu;
    set->base.relu_back = relu_back;
    set->base.silu = silu;
    set->base.silu_back = silu_back;
}
