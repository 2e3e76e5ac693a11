/* k_autoencoder.h - arguments of the kernels in k_autoencoder.cu, shared by host and device.
 *
 * Pointers to activations are void because one struct serves f32 and bf16 kernels. The sizes are
 * asserted on both sides: the host passes these bytes to the device as they are. */
#pragma once

#include <assert.h>
#include <stdint.h>

/* delta = y - x and, where normed is present, normed = y rstd: one block per row. */
typedef struct strait_cuda_subtract_norm_args {
    void *delta, *normed; // normed may be NULL, and rstd with it
    float *rstd;
    const void *y, *x;
    int32_t cols, delta_cols; // delta may be wider than y
    float epsilon;
} strait_cuda_subtract_norm_args;

/* y[:, first ...] = [silu(x), beside]. */
typedef struct strait_cuda_silu_cols_args {
    void *y;
    const void *x, *beside; // beside may be NULL
    int64_t rows, y_cols, cols, first, beside_cols;
    int32_t is_beside_f32; // otherwise beside has the type of y
} strait_cuda_silu_cols_args;

/* The gradients of strait_norm_silu_grads: one warp per row. */
typedef struct strait_cuda_norm_silu_args {
    void *scaled, *d_a, *d_y;
    const void *d_h, *a, *n;
    const float *rstd;
    const void *plus; // may be NULL
    int64_t rows, cols, width;
} strait_cuda_norm_silu_args;

static_assert(sizeof(strait_cuda_subtract_norm_args) == 56, "host and device layouts agree");
static_assert(sizeof(strait_cuda_silu_cols_args) == 72, "host and device layouts agree");
static_assert(sizeof(strait_cuda_norm_silu_args) == 88, "host and device layouts agree");
