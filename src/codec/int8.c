/* int8.c - eight bits per value, and one scale per token. */
#include "codec/payload.h"
#include "codec/plain.h"

/* The name already says the number of bits; another number is a mistake. */
static strait_err check(strait_codec_spec *spec) {
    if (spec->bits != 0 && spec->bits != 8)
        return STRAIT_FAIL(STRAIT_ECONFIG, "codec int8: bits is %d; set it to 0, or choose int4",
                           spec->bits);
    return strait_payload_check(spec, 8);
}

extern const struct strait_codec_ops strait_codec_int8;

const struct strait_codec_ops strait_codec_int8 = {
    .name = "int8",
    .state_size = sizeof(struct strait_plain),
    .check = check,
    .traits = strait_feedback_traits,
    .wire_bytes = strait_plain_wire_bytes,
    .plan = strait_plain_plan,
    .act_pack = strait_plain_pack,
    .act_unpack = strait_payload_unpack,
    .metrics = strait_feedback_metrics,
};
