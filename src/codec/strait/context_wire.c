/* context_wire.c - the wire format of the strait codec's variant context: a log-scale payload at 4
 * bits per value, otherwise the payload of other codecs. A log-scale payload saves half a byte per
 * token: its scale takes 4 bits, like a value, so that k = 31 values and their scale are 16 bytes.
 */
#include "codec/payload.h"
#include "codec/strait/context.h"

size_t strait_context_wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    const int bits = strait_codec_bits(spec, direction);
    /* One f32 per message, and per token the scale and k values at half a byte each, rounded up. */
    if (bits == 4) return sizeof(float) + (size_t)spec->rows * (((size_t)spec->keep + 2) / 2);
    return strait_payload_bytes(spec->rows, spec->keep, bits);
}

strait_err strait_context_send(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x) {
    if (strait_codec_bits(&c->spec, strait_codec_sends(c)) != 4)
        return strait_payload_pack(c, at, wire, x);
    return c->backend->kernels->log_scale->pack(
        at->stream, wire, strait_codec_stats(c, at, x.rows, STRAIT_METER_PACK), x,
        strait_payload_params(c, at, 4));
}

strait_err strait_context_receive(struct strait_codec *c, const strait_crossing *at,
                                  strait_tensor x, strait_tensor wire) {
    const strait_direction direction = strait_codec_receives(c);
    if (strait_codec_bits(&c->spec, direction) != 4) return strait_payload_unpack(c, at, x, wire);
    const strait_pack_params params = {.is_stochastic = direction == STRAIT_BACKWARD &&
                                                        c->spec.rounding != STRAIT_ROUND_NEAREST,
                                       .cols = c->spec.is_padded ? c->spec.keep : 0};
    return c->backend->kernels->log_scale->restore(
        at->stream, x, strait_codec_stats(c, at, x.rows, STRAIT_METER_UNPACK), wire, params);
}
