/* strait_padded.h - what the two files of strait's variants tied and free share. Their state begins
 * with struct strait_padded, which strait_padded.c knows. */
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

/* The padded way: K is k padded, and what is not said to be f32 is of the stream's type. The sides
 * that make x are one matrix: [D, W, P]. */
struct strait_padded {
    /* head */
    strait_tensor delta;    // slots [d]: y - x
    strait_tensor d_u;      // gradient slots f32 [K]
    strait_tensor half_d_u; // gradient slots [K]
    strait_tensor u;        // [N x K] f32
    strait_tensor e;        // copy [K x d]
    /* tail */
    strait_tensor z, rstd;         // slots f32 [K], [1]
    strait_tensor all;             // slots [K + m + r]: z, silu(a), T[t]
    strait_tensor normed, a;       // slots [K], [m]
    strait_tensor d_all, d_normed; // [N x (K + m + r)], [N x K]
    strait_tensor d_a, d_anchors;  // gradient slots [m], [r]
    strait_tensor anchors;         // [N x r]
    strait_codec_held held;        // the gradient of x
    strait_tensor d_z;             // [N x K] f32
    strait_tensor dwp, v;          // copies [d x (K + m + r)], [m x K]
    /* both */
    strait_tensor capacity; // f32, for gradients on their way
};

strait_err strait_padded_plan_sender(struct strait_codec *c, struct strait_padded *st);
strait_err strait_padded_plan_receiver(struct strait_codec *c, struct strait_padded *st);

extern const struct strait_codec_ops strait_padded_ops; // its crossings
