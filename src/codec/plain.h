/* plain.h - codecs that send every value of the stream as a payload: none and int8 share these
 * entries of their tables. */
#pragma once

#include "codec/feedback.h"

struct strait_plain {
    struct strait_feedback feedback;
};

size_t strait_plain_wire_bytes(const strait_codec_spec *spec, strait_direction direction);
strait_err strait_plain_plan(struct strait_codec *c);
strait_err strait_plain_pack(struct strait_codec *c, const strait_crossing *at, strait_tensor wire,
                             strait_tensor x);
