#include "codec/codec.h"

extern const struct strait_codec_ops strait_codec_none;
extern const struct strait_codec_ops strait_codec_int8;
extern const struct strait_codec_ops strait_codec_strait;

const struct strait_codec_ops *const strait_codecs[] = {
    &strait_codec_none,
    &strait_codec_int8,
    &strait_codec_strait,
    NULL,
};
