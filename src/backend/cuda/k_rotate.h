/* k_rotate.h - arguments of the kernels in k_rotate.cu, shared by host and device. */
#pragma once

#include <assert.h>

/* The columns of a token are heads of `dim` values: n_query queries, n_key keys, n_key values. */
typedef struct strait_cuda_rotate_args {
    const float *gain, *cos, *sin; // gain may be absent
    int n_query, n_key, dim, seq_len;
    int group; // lanes per head: a power of two
} strait_cuda_rotate_args;

static_assert(sizeof(strait_cuda_rotate_args) == 48, "host and device layouts agree");
