/* payload.h - a tensor on the wire at 32, 16, 8 or 4 bits per value: the format in which most
 * codecs send what they computed. At 8 and 4 bits each row has its own scale; docs/codecs.md has
 * the layout byte for byte. */
#pragma once

#include "codec/codec.h"

/* Bytes of a payload, scales included. */
size_t strait_payload_bytes(int64_t rows, int64_t cols, int bits);

/* For ops->wire_bytes of codecs whose crossing is one code of `keep` values per token. */
size_t strait_payload_code_bytes(const strait_codec_spec *spec, strait_direction direction);

/* For ops->check: fills in bits (with `otherwise`) and grad_bits; STRAIT_ECONFIG unless both are
 * 32, 16, 8 or 4. */
strait_err strait_payload_check(strait_codec_spec *spec, int otherwise);

/* How this side rounds at this crossing, when it sends `bits` per value: to nearest or
 * stochastically, and then from which random stream. */
strait_pack_params strait_payload_params(const struct strait_codec *c, const strait_crossing *at,
                                         int bits);

/* Packs x at the bits of the spec, and measures what is lost. */
strait_err strait_payload_pack(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x);

/* Unpacks x, and counts values that are not finite, which become 0. */
strait_err strait_payload_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                                 strait_tensor wire);
