/* context_gates.c - token gates: a value is multiplied by 1 + the token's row of a table, column by
 * column. The table is the last parameter of its side. */
#include "codec/strait/context.h"

static strait_param gates_of(const struct strait_codec *c) {
    return c->params[c->n_params - 1];
}

/* The name "G" is part of checkpoints. */
strait_err strait_context_plan_gates(struct strait_codec *c) {
    if (!c->spec.has_gates) return STRAIT_OK;
    return strait_codec_add_param(c, "G", STRAIT_ROLE_VALUES, c->spec.vocab, c->spec.cols);
}

strait_err strait_context_gate(struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                               strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    if (!c->spec.has_gates) return k->cast(at->stream, y, x);
    return k->token_gates->apply(at->stream, y, x, gates_of(c).value, at->tokens);
}

strait_err strait_context_gate_back(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor d_y, strait_tensor x) {
    const struct strait_kernels *k = c->backend->kernels;
    if (!c->spec.has_gates) return d_x.data == d_y.data ? STRAIT_OK : k->cast(at->stream, d_x, d_y);
    return k->token_gates->apply_back(at->stream, d_x, x, d_y, x, gates_of(c).value, at->tokens);
}

strait_err strait_context_gate_grads(struct strait_codec *c, const strait_crossing *at,
                                     strait_tensor slots) {
    if (!c->spec.has_gates) return STRAIT_OK;
    return c->backend->kernels->embed_back(at->stream, gates_of(c).grad,
                                           strait_codec_slot(c, slots, at->slot), at->tokens);
}
