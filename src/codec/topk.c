/* topk.c - the largest values of each token, in bfloat16, with their column indices. */
#include "codec/builder.h"
#include "codec/feedback.h"
#include "codec/payload.h"

struct topk {
    struct strait_feedback feedback;
};

/* A sixteenth of the values is the default, which is a compression of 8 at 4 bytes per value. */
static strait_err check(strait_codec_spec *spec) {
    const int64_t keep = spec->cols >= 16 ? spec->cols / 16 : 1;
    STRAIT_TRY(strait_codec_need(spec, "keep", &spec->keep, keep, spec->cols));
    if ((spec->bits != 0 && spec->bits != 16) || (spec->grad_bits != 0 && spec->grad_bits != 16))
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec topk: values are sent at 16 bits; set bits to 0");
    return strait_payload_check(spec, 16);
}

static unsigned kernels(const strait_codec_spec *spec) {
    (void)spec;
    return STRAIT_NEEDS_TOPK;
}

static size_t wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    (void)direction;
    /* Two bytes per value, and two per index while the width fits in 16 bits. */
    return (size_t)(spec->rows * spec->keep) * (spec->cols > 65536 ? 6 : 4);
}

/* The kernel sorts indices, so that equal inputs give equal bytes. */
static strait_err pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                       strait_tensor x) {
    return c->backend->kernels->topk->pack(at->stream, wire, x, c->spec.keep,
                                           strait_payload_params(c, at, 16));
}

static strait_err restore(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                          strait_tensor wire) {
    return c->backend->kernels->topk->restore(at->stream, x, (strait_tensor){0}, wire,
                                              c->spec.keep);
}

static const strait_lossy lossy = {.pack = pack, .restore = restore};

/* The error is the values that were dropped, which feedback measures after packing. */
static strait_err plan(struct strait_codec *c) {
    struct topk *st = c->state;
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, c->spec.rows));
    return strait_feedback_plan(&st->feedback, c, &lossy);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    struct topk *st = c->state;
    return strait_feedback_send(&st->feedback, c, at, wire, x, &lossy);
}

/* Columns that were not sent become 0. */
static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    return c->backend->kernels->topk->restore(
        at->stream, x, strait_codec_stats(c, at, x.rows, STRAIT_METER_UNPACK), wire, c->spec.keep);
}

extern const struct strait_codec_ops strait_codec_topk;

const struct strait_codec_ops strait_codec_topk = {
    .name = "topk",
    .state_size = sizeof(struct topk),
    .kernels = kernels,
    .check = check,
    .traits = strait_feedback_traits,
    .wire_bytes = wire_bytes,
    .plan = plan,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .metrics = strait_feedback_metrics,
};
