/* k_norm_conv.h - arguments of a norm and the convolution after it, shared by host and device. */
#pragma once

#include <assert.h>
#include <stdint.h>

/* Devices from this one on copy rows to shared memory while they compute, and need place for two
 * groups of rows. */
#define STRAIT_CUDA_NORM_CONV_AHEAD 800

enum {
    STRAIT_CUDA_NORM_CONV_BYTES = 8,   // of a column that a block takes at a time: rows by size
    STRAIT_CUDA_NORM_CONV_SHARES = 264 // most blocks of the gradient: two per processor of an H100
};

typedef struct strait_cuda_norm_conv_args {
    void *y, *sum; // forward: outputs; sum is NULL without delta
    float *rstd;
    const void *x, *delta;
    const float *gain, *taps;
    int64_t rows, seq_len;
    int cols, n_taps;
    float epsilon;
    int unused;
} strait_cuda_norm_conv_args;

typedef struct strait_cuda_norm_conv_back_args {
    void *d_x;
    float *parts; // sums of each block over its rows: [blocks x (n_taps + 1) cols], gains last
    const void *d_y, *x;
    const float *rstd, *gain, *taps;
    int64_t rows, seq_len;
    int cols, n_taps;
} strait_cuda_norm_conv_back_args;

static_assert(sizeof(strait_cuda_norm_conv_args) == 88, "host and device layouts agree");
static_assert(sizeof(strait_cuda_norm_conv_back_args) == 80, "host and device layouts agree");
