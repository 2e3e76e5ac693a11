/* context.h - what the files of strait's variant context share. Its state begins with struct
 * strait_context_padded, which context_padded.c knows. */
#pragma once

#include "codec/builder.h"

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
 * rows are one matrix: [E, B, M] and [D, W]. */
struct strait_context_padded {
    /* head */
    strait_tensor seen;           // slots T [d + w + K]: h (y - x), silu(b), z
    strait_tensor delta;          // slots T [d]: y - x, where there are gains
    strait_tensor normed, b;      // slots T [d], [w]: rms(y), rms(y) A'
    strait_tensor head_rstd;      // slots f32 [1]
    strait_tensor d_u, d_b;       // gradient slots T [K], [w]
    strait_tensor d_delta;        // gradient slots T [d]
    strait_tensor u;              // [N x K] f32
    strait_tensor d_h, scaled;    // [N x w] T
    strait_tensor ebm;            // copy, T [K x (d + w + K)]
    strait_tensor half_e, half_a; // copies, T: [K x d], [w x d]
    strait_tensor half_b, half_m; // copies, T: [K x w], [K x K]
    /* tail */
    strait_tensor z, tail_rstd; // slots f32 [K], [1]
    strait_tensor both;         // slots T [nK + m]: last(z) and silu(a)
    strait_tensor normeds, a;   // slots T [nK], [m]: last(rms z) and what V makes of it
    strait_tensor d_both;       // [N x (nK + m)] T
    strait_tensor d_normeds;    // [N x nK] T
    strait_tensor d_a;          // gradient slots T [m]
    strait_tensor wide, d_wide; // slots and gradient slots T [d]: x before its gains; with them
    strait_codec_held held;     // the gradient of x; without
    strait_tensor d_z;          // [N x K] f32
    strait_tensor dw, half_v;   // copies, T: [d x (nK + m)], [m x nK]
    /* both */
    strait_tensor capacity; // f32, for gradients on their way
};

size_t strait_context_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
strait_err strait_context_send(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x);
strait_err strait_context_receive(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor x, strait_tensor wire);

/* Gains of tokens. Without spec.has_gains y is x, d_x is d_y, and there is nothing to plan or add
 * up. */
strait_err strait_context_plan_gates(struct strait_codec *c);
strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x);
/* d_x may be d_y. x becomes what gain_grads adds up, of the slots it is among. */
strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x);
strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots);

strait_err strait_context_plan_sender(struct strait_codec *c, struct strait_context_padded *st);
strait_err strait_context_plan_receiver(struct strait_codec *c, struct strait_context_padded *st);

extern const struct strait_codec_ops strait_context_padded_ops; // its crossings
