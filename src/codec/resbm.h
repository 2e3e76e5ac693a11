/* resbm.h - what the two files of resbm share. Its state begins with struct strait_resbm_padded,
 * which resbm_padded.c knows. */
#pragma once

#include "codec/builder.h"

#define STRAIT_RESBM_EPSILON 1e-6f

/* Which parameter is which. */
enum {
    W1,
    W2
};

/* The padded way: K is k padded, T the type of the stream. */
struct strait_resbm_padded {
    strait_tensor a;            // slots T [m]
    strait_tensor normed, rstd; // head: slots T [d], f32 [1]
    strait_tensor z;            // tail: slots T [K]
    strait_tensor d_a;          // gradient slots T [m]
    strait_tensor half_d_z;     // head: gradient slots T [K]
    strait_codec_held held;     // the gradient of x
    strait_tensor h, d_h;       // [N x m] T
    strait_tensor scaled;       // head: [N x m] T
    strait_tensor both;         // tail: [N x (m + K)] T: silu(a) and z
    strait_tensor code;         // [N x K] f32: what crosses
    strait_tensor w1, w2;       // copies, T: head [m x d], [K x m]; tail [m x K], [d x m]
    strait_tensor w2i, unit;    // tail: [W2, I], T [d x (m + K)]; ones for it, f32 [k x k]
    strait_tensor capacity;     // f32 [m x K]: a gradient on its way
};

strait_err strait_resbm_plan(struct strait_codec *c, struct strait_resbm_padded *st);

extern const struct strait_codec_ops strait_resbm_padded_ops; // its crossings
