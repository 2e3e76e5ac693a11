/* crossing.c - the calls for one microbatch: checks shapes, slot and bytes, converts the stream to
 * f32 where the codec needs it, and calls the codec's table. */
#include "codec/codec.h"

/* A caller's mistake would corrupt memory in a kernel later, so shapes are checked at every
 * crossing. */
static strait_err check(const struct strait_codec *c, strait_codec_side side,
                        const strait_crossing *at, strait_tensor x) {
    const strait_codec_spec *spec = &c->spec;
    if (c->side != side)
        return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: codec %s was called on the wrong side",
                           spec->boundary, spec->name);
    if (at->slot < 0 || at->slot >= spec->n_slots)
        return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: slot %d of %d does not exist",
                           spec->boundary, at->slot, spec->n_slots);
    const int64_t cols = strait_codec_width(spec);
    if (x.rows != spec->rows || x.cols != cols || x.dtype != spec->precision)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "boundary %d: tensor is %lld x %lld, codec %s takes %lld x %lld of the "
                           "spec's precision",
                           spec->boundary, (long long)x.rows, (long long)x.cols, spec->name,
                           (long long)spec->rows, (long long)cols);
    const unsigned traits = strait_codec_traits(spec);
    if (traits & STRAIT_CODEC_TOKENS && (at->tokens.data == NULL || at->tokens.rows != spec->rows))
        return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: codec %s needs one token id per row",
                           spec->boundary, spec->name);
    if (traits & STRAIT_CODEC_TABLE && (at->table.data == NULL || at->table.cols != spec->cols))
        return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: codec %s needs the stage's token table",
                           spec->boundary, spec->name);
    return STRAIT_OK;
}

/* Views the wire as one row of bytes, whatever shape the caller gave it. A wrong size comes from a
 * peer, or from a spec that differs from the peer's. */
static strait_err check_wire(const struct strait_codec *c, strait_direction direction,
                             strait_tensor *wire) {
    const size_t bytes = strait_codec_wire_bytes(&c->spec, direction);
    if (strait_tensor_bytes(*wire) != bytes)
        return STRAIT_FAIL(STRAIT_EPROTO, "boundary %d: %zu bytes on the wire, codec %s uses %zu",
                           c->spec.boundary, strait_tensor_bytes(*wire), c->spec.name, bytes);
    *wire = (strait_tensor){wire->data, STRAIT_I8, 1, (int64_t)bytes};
    return STRAIT_OK;
}

static strait_err cast(const struct strait_codec *c, const strait_crossing *at, strait_tensor y,
                       strait_tensor x) {
    return c->backend->kernels->cast(at->stream, y, x);
}

/* The table whose crossings this side uses. */
static const struct strait_codec_ops *crossings_of(const struct strait_codec *c) {
    return c->spec.is_padded && c->ops->padded != NULL ? c->ops->padded : c->ops;
}

/* Whether the codec computes on x as it is. A bf16 stream of a codec without padding is converted
 * through c->wide. */
static int takes(const struct strait_codec *c, strait_tensor x) {
    return x.dtype == STRAIT_F32 || c->spec.is_padded;
}

/* Replaces *x by its f32 version, which the codec may also write to. */
static strait_err widen(struct strait_codec *c, const strait_crossing *at, strait_tensor *x) {
    if (takes(c, *x)) return STRAIT_OK;
    STRAIT_TRY(cast(c, at, c->wide, *x));
    *x = c->wide;
    return STRAIT_OK;
}

static strait_err unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                         strait_tensor wire, strait_codec_unpack_fn with) {
    if (takes(c, x)) return with(c, at, x, wire);
    STRAIT_TRY(with(c, at, c->wide, wire));
    return cast(c, at, x, c->wide);
}

strait_err strait_codec_act_pack(struct strait_codec *c, const strait_crossing *at,
                                 strait_tensor wire, strait_tensor x) {
    STRAIT_TRY(check(c, STRAIT_SENDER, at, x));
    STRAIT_TRY(check_wire(c, STRAIT_FORWARD, &wire));
    if (strait_codec_traits(&c->spec) & STRAIT_CODEC_INPUT &&
        (at->input.rows != x.rows || at->input.cols != x.cols || at->input.data == NULL))
        return STRAIT_FAIL(STRAIT_EINVAL, "boundary %d: codec %s needs the input of the stage",
                           c->spec.boundary, c->spec.name);
    strait_crossing wide = *at;
    if (c->wide_input.data != NULL) {
        STRAIT_TRY(cast(c, at, c->wide_input, at->input));
        wide.input = c->wide_input;
    }
    STRAIT_TRY(widen(c, at, &x));
    return crossings_of(c)->act_pack(c, &wide, wire, x);
}

strait_err strait_codec_act_unpack(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor y, strait_tensor wire) {
    STRAIT_TRY(check(c, STRAIT_RECEIVER, at, y));
    STRAIT_TRY(check_wire(c, STRAIT_FORWARD, &wire));
    return unpack(c, at, y, wire, crossings_of(c)->act_unpack);
}

strait_err strait_codec_grad_pack(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor wire, strait_tensor d_y) {
    STRAIT_TRY(check(c, STRAIT_RECEIVER, at, d_y));
    STRAIT_TRY(check_wire(c, STRAIT_BACKWARD, &wire));
    STRAIT_TRY(widen(c, at, &d_y));
    const struct strait_codec_ops *ops = crossings_of(c);
    return (ops->grad_pack != NULL ? ops->grad_pack : ops->act_pack)(c, at, wire, d_y);
}

strait_err strait_codec_grad_unpack(struct strait_codec *c, const strait_crossing *at,
                                    strait_tensor d_x, strait_tensor wire) {
    STRAIT_TRY(check(c, STRAIT_SENDER, at, d_x));
    STRAIT_TRY(check_wire(c, STRAIT_BACKWARD, &wire));
    const struct strait_codec_ops *ops = crossings_of(c);
    return unpack(c, at, d_x, wire, ops->grad_unpack != NULL ? ops->grad_unpack : ops->act_unpack);
}

/* A widened gradient is a copy, so the result is written back to the caller's tensor. */
strait_err strait_codec_input_grad(struct strait_codec *c, const strait_crossing *at,
                                   strait_tensor d_x) {
    if (crossings_of(c)->input_grad == NULL) return STRAIT_OK;
    STRAIT_TRY(check(c, STRAIT_SENDER, at, d_x));
    const strait_tensor narrow = d_x;
    STRAIT_TRY(widen(c, at, &d_x));
    STRAIT_TRY(crossings_of(c)->input_grad(c, at, d_x));
    return narrow.data != d_x.data ? cast(c, at, narrow, d_x) : STRAIT_OK;
}

strait_err strait_codec_param_grads(struct strait_codec *c, const strait_crossing *at) {
    return crossings_of(c)->param_grads != NULL ? crossings_of(c)->param_grads(c, at) : STRAIT_OK;
}

/* Only the sender constrains weights: they are those of its own stage. */
strait_err strait_codec_project_gradients(struct strait_codec *c, struct strait_stream *s,
                                          strait_param *params, int n) {
    if (c->ops->project_gradients == NULL || c->side != STRAIT_SENDER) return STRAIT_OK;
    return c->ops->project_gradients(c, s, params, n);
}

strait_err strait_codec_after_update(struct strait_codec *c, struct strait_stream *s,
                                     strait_param *params, int n) {
    if (c->ops->after_update == NULL || c->side != STRAIT_SENDER) return STRAIT_OK;
    return c->ops->after_update(c, s, params, n);
}
