#include "codec/codec.h"

extern const struct strait_codec_ops strait_codec_none;
extern const struct strait_codec_ops strait_codec_int8;
extern const struct strait_codec_ops strait_codec_int4;
extern const struct strait_codec_ops strait_codec_topk;
extern const struct strait_codec_ops strait_codec_lowrank;
extern const struct strait_codec_ops strait_codec_subspace;
extern const struct strait_codec_ops strait_codec_resbm;
extern const struct strait_codec_ops strait_codec_context;
extern const struct strait_codec_ops strait_codec_strait;

const struct strait_codec_ops *const strait_codecs[] = {
    &strait_codec_none,    &strait_codec_int8,
    &strait_codec_int4,    &strait_codec_topk,
    &strait_codec_lowrank, &strait_codec_subspace,
    &strait_codec_resbm,   &strait_codec_context,
    &strait_codec_strait,  NULL,
};
