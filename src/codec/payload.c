#include "codec/payload.h"

#include "codec/builder.h"

size_t strait_payload_bytes(int64_t rows, int64_t cols, int bits) {
    /* 16 and 32 bits need no scales. Below, there is one f32 base per message and a byte per row.
     */
    if (bits >= 16) return (size_t)(rows * cols) * (size_t)bits / 8;
    return sizeof(float) + (size_t)rows * (1 + ((size_t)cols * (size_t)bits + 7) / 8);
}

size_t strait_payload_code_bytes(const strait_codec_spec *spec, strait_direction direction) {
    return strait_payload_bytes(spec->rows, spec->keep, strait_codec_bits(spec, direction));
}

/* The widths for which the kernels exist. */
static int is_known(int bits) {
    return bits == 32 || bits == 16 || bits == 8 || bits == 4;
}

strait_err strait_payload_check(strait_codec_spec *spec, int otherwise) {
    if (spec->bits == 0) spec->bits = otherwise;
    if (spec->grad_bits == 0) spec->grad_bits = spec->bits;
    if (!is_known(spec->bits) || !is_known(spec->grad_bits))
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec %s: %s is %d, but must be 32, 16, 8 or 4",
                           spec->name, is_known(spec->bits) ? "grad_bits" : "bits",
                           is_known(spec->bits) ? spec->grad_bits : spec->bits);
    return STRAIT_OK;
}

strait_pack_params strait_payload_params(const struct strait_codec *c, const strait_crossing *at,
                                         int bits) {
    const int is_wanted = c->spec.rounding == STRAIT_ROUND_STOCHASTIC ||
                          (c->spec.rounding == STRAIT_ROUND_AUTO && bits < 16);
    strait_pack_params params = {
        .bits = bits, .seed = c->spec.seed, .cols = c->spec.is_padded ? c->spec.keep : 0};
    params.is_stochastic = is_wanted && strait_codec_sends(c) == STRAIT_BACKWARD;
    if (!params.is_stochastic) return params;
    /* The bits of a step do not depend on the order in which crossings happen: the stream follows
     * from the place of the crossing in the run alone. */
    strait_rng rng = {c->spec.seed, strait_rng_stream("codec.rounding")};
    rng.stream = strait_rng_u64(rng, (uint64_t)c->spec.boundary);
    rng.stream = strait_rng_u64(rng, (uint64_t)at->step);
    params.stream = strait_rng_u64(rng, (uint64_t)at->microbatch);
    return params;
}

strait_err strait_payload_pack(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x) {
    const int bits = strait_codec_bits(&c->spec, strait_codec_sends(c));
    return c->backend->kernels->pack_rows(at->stream, wire,
                                          strait_codec_stats(c, at, x.rows, STRAIT_METER_PACK), x,
                                          strait_payload_params(c, at, bits));
}

strait_err strait_payload_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                                 strait_tensor wire) {
    const strait_pack_params params = {
        .bits = strait_codec_bits(&c->spec, strait_codec_receives(c)),
        .cols = c->spec.is_padded ? c->spec.keep : 0};
    return c->backend->kernels->restore_rows(
        at->stream, x, strait_codec_stats(c, at, x.rows, STRAIT_METER_UNPACK), wire, params);
}
