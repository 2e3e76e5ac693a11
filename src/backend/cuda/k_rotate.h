/* k_rotate.h - what rotate.c tells k_rotate.cu. */
#pragma once

#include <assert.h>

/* One token's columns are heads of `dim` values: n_query, then n_key, then n_key. */
typedef struct strait_cuda_turn {
    const float *gain, *cos, *sin; // gain may be absent
    int n_query, n_key, dim, seq_len;
    int group; // lanes that share a head: a power of two
} strait_cuda_turn;

static_assert(sizeof(strait_cuda_turn) == 48, "host and device layouts agree");
