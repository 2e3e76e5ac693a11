/* none.c - no compression: every value, exact in variant fp32, rounded to bfloat16 by default. */
#include "codec/builder.h"
#include "codec/feedback.h"
#include "codec/payload.h"
#include "codec/plain.h"

/* The first one is the default. */
static const char *const variants[] = {"bf16", "fp32", NULL};

/* bits repeats the variant, so a different value cannot be honoured. */
static strait_err check(strait_codec_spec *spec) {
    const int bits = strait_codec_is_variant(spec, "fp32") ? 32 : 16;
    if (spec->bits != 0 && spec->bits != bits)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "codec none: bits is %d, but variant %s has %d; set bits to 0",
                           spec->bits, spec->variant, bits);
    return strait_payload_check(spec, bits);
}

/* Feedback carries an error from step to step; without it the codec is linear up to rounding. */
static unsigned traits(const strait_codec_spec *spec) {
    const int is_exact = spec->bits == 32 && spec->grad_bits == 32 && !spec->has_feedback;
    return (unsigned)(is_exact ? STRAIT_CODEC_LOSSLESS : 0) |
           (spec->has_feedback ? strait_feedback_traits(spec) : STRAIT_CODEC_LINEAR);
}

extern const struct strait_codec_ops strait_codec_none;

const struct strait_codec_ops strait_codec_none = {
    .name = "none",
    .variants = variants,
    .state_size = sizeof(struct strait_plain),
    .check = check,
    .traits = traits,
    .wire_bytes = strait_plain_wire_bytes,
    .plan = strait_plain_plan,
    .act_pack = strait_plain_pack,
    .act_unpack = strait_payload_unpack,
    .metrics = strait_feedback_metrics,
};
