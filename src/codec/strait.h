/* strait.h - what the two files of the strait codec's variants tied and free share. */
#pragma once

#include "codec/builder.h"

#define STRAIT_STRAIT_EPSILON 1e-6f

/* Which parameter is which. */
enum {
    E = 0, // head [k x d]
    D = 0, // tail [d x k]
    V,     // tail [m x k]
    W,     // tail [d x m]
    T,     // tail [vocab x r]
    P      // tail [d x r]
};

/* The padded implementation, in strait_padded.c. */
extern const struct strait_codec_ops strait_padded_ops;
