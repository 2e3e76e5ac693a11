/* context.h - what the two files of strait's variant context share. Its state begins with struct
 * strait_context_padded, which context_padded.c knows. */
#pragma once

#include "codec/parts.h"

#define STRAIT_CONTEXT_EPSILON 1e-6f

/* Which parameter is which. */
enum {
    E = 0, // head [k x d]
    A,     // head [w x d]
    B,     // head [k x w]
    M,     // head [k x k], but on the first stage
    D = 0, // tail [d x nk]
    V,     // tail [m x nk]
    W      // tail [d x m]
};

/* The padded way: K is k padded, T the type of the stream. Sides of matrices that meet the same
 * rows are one matrix: [E; A], [E, B, M], [B, M] and [D, W]. */
struct strait_context_padded {
    /* head */
    strait_tensor seen;        // slots T [d + w + K]: y - x, silu(b), z
    strait_tensor normed, b;   // slots T [d], [w]: rms(y), rms(y) A'
    strait_tensor head_rstd;   // slots f32 [1]
    strait_tensor d_u, d_b;    // gradient slots T [K], [w]
    strait_tensor u;           // [N x K] f32
    strait_tensor d_h;         // gradient slots T [w + K]: du B, du M
    strait_tensor scaled;      // [N x (K + w)] T
    strait_tensor ea, ebm, bm; // copies, T: [(K + w) x d], [K x (d + w + K)], [K x (w + K)]
    /* tail */
    strait_tensor z, tail_rstd; // slots f32 [K], [1]
    strait_tensor both;         // slots T [nK + m]: last(z) and silu(a)
    strait_tensor normeds, a;   // slots T [nK], [m]: last(rms z) and what V makes of it
    strait_tensor d_both;       // [N x (nK + m)] T
    strait_tensor d_normeds;    // [N x nK] T
    strait_tensor d_a;          // gradient slots T [m]
    strait_codec_held held;     // the gradient of x
    strait_tensor d_z, largest; // [N x K] f32, and the largest of each row [N x 1]
    strait_tensor dw, half_v;   // copies, T: [d x (nK + m)], [m x nK]
    /* both */
    strait_tensor room; // f32, for gradients on their way
};

/* largest: of x, as strait_pack_how has it, or absent. */
strait_err strait_context_send(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x, strait_tensor largest);
strait_err strait_context_receive(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor x, strait_tensor wire);

/* Whether what this half receives is octaves; and if so, how they were packed. */
int strait_context_gets_octaves(const struct strait_codec *c);
strait_pack_how strait_context_how(const struct strait_codec *c);

strait_err strait_context_plan_head(struct strait_codec *c, struct strait_context_padded *st);
strait_err strait_context_plan_tail(struct strait_codec *c, struct strait_context_padded *st);

extern const struct strait_codec_ops strait_context_padded_ops; // its crossings
