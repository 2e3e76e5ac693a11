/* int4.c - four bits per value. Each tile of a token is rotated by a Hadamard matrix, which spreads
 * single large values over the tile, and then rounded with its own scale. */
#include "codec/builder.h"
#include "codec/feedback.h"
#include "codec/payload.h"

struct int4 {
    struct strait_feedback feedback;
    strait_tensor rotated; // [N x D]
};

enum {
    TILE = 128 // default: one scale byte per 64 bytes of codes
};

/* The largest power of two up to TILE that divides the width. */
static int64_t default_tile(int64_t cols) {
    int64_t tile = 1;
    while (tile < TILE && cols % (tile * 2) == 0)
        tile *= 2;
    return tile;
}

static strait_err check(strait_codec_spec *spec) {
    STRAIT_TRY(strait_codec_need(spec, "tile", &spec->tile, default_tile(spec->cols), spec->cols));
    if ((spec->tile & (spec->tile - 1)) != 0 || spec->cols % spec->tile != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec int4: tile is %lld, but must be a power of two that divides the "
                           "width %lld",
                           (long long)spec->tile, (long long)spec->cols);
    if (spec->bits != 0 && spec->bits != 4)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec int4: bits is %d; set it to 0, or choose int8",
                           spec->bits);
    return strait_payload_check(spec, 4);
}

static unsigned kernels(const strait_codec_spec *spec) {
    (void)spec;
    return STRAIT_NEEDS_HADAMARD;
}

/* One scale per tile instead of one per token. */
static size_t wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    return strait_payload_bytes(spec->rows * (spec->cols / spec->tile), spec->tile,
                                strait_codec_bits(spec, direction));
}

/* The same tensor with one row per tile, so that each tile gets its own scale. */
static strait_tensor tiles(const struct strait_codec *c, strait_tensor x) {
    return strait_tensor_reshape(x, x.rows * (x.cols / c->spec.tile), c->spec.tile);
}

static strait_err pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                       strait_tensor x) {
    const struct int4 *st = c->state;
    STRAIT_TRY(c->backend->kernels->hadamard->transform(at->stream, st->rotated, x, c->spec.tile));
    return strait_payload_pack(c, at, wire, tiles(c, st->rotated));
}

static strait_err restore(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                          strait_tensor wire) {
    const struct strait_kernels *k = c->backend->kernels;
    /* The bits that this side sent at: it restores its own payload to see what was lost. */
    const strait_pack_params sent = {.bits = strait_codec_bits(&c->spec, strait_codec_sends(c))};
    STRAIT_TRY(k->restore_rows(at->stream, tiles(c, x), (strait_tensor){0}, wire, sent));
    return k->hadamard->transform(at->stream, x, x, c->spec.tile);
}

static const strait_lossy lossy = {.pack = pack, .restore = restore, .is_metered = 1};

static strait_err plan(struct strait_codec *c) {
    struct int4 *st = c->state;
    const int64_t n = c->spec.rows, d = c->spec.cols;
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, n * (d / c->spec.tile)));
    STRAIT_TRY(strait_codec_add(c, &(strait_codec_tensor){&st->rotated, n, d}, 1));
    return strait_feedback_plan(&st->feedback, c, &lossy);
}

static strait_err act_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                           strait_tensor x) {
    struct int4 *st = c->state;
    return strait_feedback_send(&st->feedback, c, at, wire, x, &lossy);
}

static strait_err act_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                             strait_tensor wire) {
    STRAIT_TRY(strait_payload_unpack(c, at, tiles(c, x), wire));
    return c->backend->kernels->hadamard->transform(at->stream, x, x, c->spec.tile);
}

extern const struct strait_codec_ops strait_codec_int4;

const struct strait_codec_ops strait_codec_int4 = {
    .name = "int4",
    .state_size = sizeof(struct int4),
    .kernels = kernels,
    .check = check,
    .traits = strait_feedback_traits,
    .wire_bytes = wire_bytes,
    .plan = plan,
    .act_pack = act_pack,
    .act_unpack = act_unpack,
    .metrics = strait_feedback_metrics,
};
