/* context.h - what the files of the strait codec's variant context share. */
#pragma once

#include "codec/builder.h"

#define STRAIT_CONTEXT_EPSILON 1e-6f // of rms

/* Indices into strait_codec.params; sender and receiver each count from 0. */
enum {
    E = 0, // sender [k x d]
    A,     // sender [w x d]
    B,     // sender [k x w]
    M,     // sender [k x k], except on the first stage
    D = 0, // receiver [d x nk]
    V,     // receiver [m x nk]
    W      // receiver [d x m]
};

/* The wire format: log-scale payloads at 4 bits, otherwise those of payload.h. A log-scale payload
 * has 4-bit scales, each a power of sqrt(2) below the largest of the message. */
size_t strait_context_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
strait_err strait_context_send(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x);
strait_err strait_context_receive(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor x, strait_tensor wire);

/* Token gates: y = (1 + G[t]) x, column by column, with one trained row of G per token id. Without
 * spec.has_gates y is x, d_x is d_y, and nothing is planned or added. */
strait_err strait_context_plan_gates(struct strait_codec *c);
strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x);
/* d_x = (1 + G[t]) d_y; d_x may be d_y. x is overwritten by x d_y, whose rows gate_grads then adds
 * to the gradient of G. */
strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x);
/* Adds the gradient of G for a slot, after gate_back has prepared `slots`. */
strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots);

/* Whether this sender encodes all of the stage's output y, not what the stage added to its input x:
 * at the first boundary of a model whose later stages do not know x from the token ids. There y - x
 * starts at 0 in families that begin with blocks without effect, and nothing would ever cross. */
int strait_context_encodes_input(const struct strait_codec *c);

/* The padded implementation, in context_padded.c. */
extern const struct strait_codec_ops strait_context_padded_ops;
