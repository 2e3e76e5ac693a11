/* strait.h - what the two files of the strait codec's variants tied and free share. */
#pragma once

#include "codec/builder.h"

#define STRAIT_STRAIT_EPSILON 1e-6f // of rms

/* Indices into strait_codec.params; sender and receiver each count from 0. */
enum {
    E = 0, // sender [k x d]
    D = 0, // receiver [d x k]
    V,     // receiver [m x k]
    W,     // receiver [d x m]
    T,     // receiver [vocab x r]
    P      // receiver [d x r]
};

/* The padded implementation, in strait_padded.c. */
extern const struct strait_codec_ops strait_padded_ops;
