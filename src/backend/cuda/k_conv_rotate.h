/* k_conv_rotate.h - arguments of a convolution and the rotation after it, shared by host and
 * device. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_CONV_ROTATE_THREADS = 128, // most threads of a block
    STRAIT_CUDA_CONV_ROTATE_PAIRS = 4      // of a thread
};

typedef struct strait_cuda_conv_rotate_args {
    void *out;                     // y, or d_x
    const void *x, *d_y;           // d_y: of the gradient alone
    float *rstd;                   // [rows x n_rotated]; absent: no norm
    float *part;                   // gradient: [shares x taps x cols], partial sums of d_taps
    const float *taps, *cos, *sin; // cos and sin [seq_len x dim / 2]
    int64_t rows;
    int cols, n_taps, seq_len;
    int dim, n_rotated; // width of a head; how many heads are queries or keys
    float epsilon;
} strait_cuda_conv_rotate_args;

static_assert(sizeof(strait_cuda_conv_rotate_args) == 96, "host and device layouts agree");
