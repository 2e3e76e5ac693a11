#include "codec/plain.h"

#include "codec/builder.h"
#include "codec/payload.h"

size_t strait_plain_wire_bytes(const strait_codec_spec *spec, strait_direction direction) {
    return strait_payload_bytes(spec->rows, spec->cols, strait_codec_bits(spec, direction));
}

/* The sender decodes its own message to learn what the receiver will see. */
static strait_err restore(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                          strait_tensor wire) {
    const strait_pack_params sent = {.bits = strait_codec_bits(&c->spec, strait_codec_sends(c))};
    return c->backend->kernels->restore_rows(at->stream, x, (strait_tensor){0}, wire, sent);
}

/* Packing already counts the error, so feedback does not measure it again. */
static const strait_lossy lossy = {
    .pack = strait_payload_pack, .restore = restore, .is_metered = 1};

/* Every codec plans the meter, even if it never loses anything. */
strait_err strait_plain_plan(struct strait_codec *c) {
    struct strait_plain *plain = c->state;
    STRAIT_TRY(strait_meter_plan(&c->meter, &c->slab, c->spec.rows));
    return strait_feedback_plan(&plain->feedback, c, &lossy);
}

strait_err strait_plain_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                             strait_tensor x) {
    struct strait_plain *plain = c->state;
    return strait_feedback_send(&plain->feedback, c, at, wire, x, &lossy);
}
