/* context.h - what the files of the strait codec's variant context share. */
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

size_t strait_context_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
strait_err strait_context_send(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x);
strait_err strait_context_receive(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor x, strait_tensor wire);

/* Gains of tokens. Without spec.has_gates y is x, d_x is d_y, and there is nothing to plan or add
 * up. */
strait_err strait_context_plan_gates(struct strait_codec *c);
strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x);
/* d_x may be d_y. x becomes what gain_grads adds up, of the slots it is among. */
strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x);
strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots);

/* The padded implementation, in context_padded.c. */
extern const struct strait_codec_ops strait_context_padded_ops;
