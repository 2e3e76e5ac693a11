/* context.h - what the files of the strait codec's variant context share. */
#pragma once

#include "codec/builder.h"

#define STRAIT_CONTEXT_EPSILON 1e-6f // of rms
#define STRAIT_CONTEXT_KEEP    31    // values of a code, by default

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

/* Token gates: y = (1 + g) x, column by column. g is the token's row of a trained table G
 * (spec.has_gates), or silu(rms(T[t]) P^T) Q^T (spec.gate_width), where T is the token table of the
 * stage, which gets no gradient from here. Without either y is x, d_x is d_y, and nothing is
 * planned or added. */
static inline int strait_context_has_gates(const strait_codec_spec *spec) {
    return spec->has_gates || spec->gate_width > 0;
}

/* Computed gates: those of all rows of the token table, computed once per refresh, where a crossing
 * has at least half as many tokens; else those of the tokens that cross, in every pass. The first
 * member of a codec's state. */
struct strait_context_gates {
    strait_tensor rows, normed, rstd; // [N x d] of the stream's type, twice; [N x 1]
    strait_tensor a, h, d_h;          // [N x r] of the stream's type
    strait_tensor gate;               // [N x d] f32, of the tokens that cross; or
    strait_tensor all;                // [at least as many rows as the token table x d] f32
    uint64_t n_refreshed;             // of the codec, when `all` was computed
    strait_tensor p, q;               // copies of the parameters, where the codec is padded
    strait_tensor ids;                // [N x 1] i32, where tables have fewer rows than tokens
};

strait_err strait_context_plan_gates(struct strait_codec *c);
/* Q starts at 0: g is 1. */
strait_err strait_context_start_gates(struct strait_codec *c, struct strait_stream *s);
strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x);
/* d_x = (1 + g) d_y; d_x may be d_y. x is overwritten by x d_y, the gradient of g, which gate_grads
 * then passes on. */
strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x);
/* Adds the gradients of G, or of P and Q, for a slot, after gate_back has prepared `slots`. */
strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots);

/* Whether this sender encodes all of the stage's output y, not what the stage added to its input x:
 * at the first boundary of a model whose later stages do not know x from the token ids. There y - x
 * starts at 0 in families that begin with blocks without effect, and nothing would ever cross. */
int strait_context_encodes_input(const struct strait_codec *c);

/* The variant, and its padded implementation (context_padded.c). */
extern const struct strait_codec_ops strait_codec_context;
extern const struct strait_codec_ops strait_context_padded_ops;
