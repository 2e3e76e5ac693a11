/* resbm.h - what the two files of the resbm codec share. */
#pragma once

#include "codec/builder.h"

#define STRAIT_RESBM_EPSILON 1e-6f

/* Indices into strait_codec.params. */
enum {
    W1,
    W2
};

/* The padded implementation, in resbm_padded.c. */
extern const struct strait_codec_ops strait_resbm_padded_ops;
