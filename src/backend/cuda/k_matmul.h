/* k_matmul.h - arguments of our own matrix product, shared by host and device. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_MATMUL_TILE = 16 // rows and columns of y per block
};

/* y [m x n] = alpha op(a) op(b) + beta y. Element (i, p) of op(a) is a[i * a_row + p * a_col], and
 * b likewise. */
typedef struct strait_cuda_matmul_args {
    void *y;
    const void *a, *b;
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    float alpha, beta; // with beta 0 the old y is not read
} strait_cuda_matmul_args;

static_assert(sizeof(strait_cuda_matmul_args) == 88, "host and device layouts agree");
