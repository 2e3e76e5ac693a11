/* payload.h - a tensor on the wire at 32, 16, 8 or 4 bits a value: what every codec sends in the
 * end. At 8 and 4 bits each row has a scale of its own; kernels.h has the layout. */
#pragma once

#include "codec/codec.h"

size_t strait_payload_bytes(int64_t rows, int64_t cols, int bits);

/* For check: fills in bits (with `otherwise`) and grad_bits, refuses what is not 32, 16, 8 or 4. */
strait_err strait_payload_check(strait_codec_spec *spec, int otherwise);

/* How this half rounds at this crossing, when it sends `bits` a value. */
strait_pack_params strait_payload_params(const struct strait_codec *c, const strait_crossing *at,
                                         int bits);

/* Sends x at the bits of the spec, and meters what is lost. */
strait_err strait_payload_pack(struct strait_codec *c, const strait_crossing *at,
                               strait_tensor wire, strait_tensor x);

/* Receives x, and meters what was no number. */
strait_err strait_payload_unpack(struct strait_codec *c, const strait_crossing *at, strait_tensor x,
                                 strait_tensor wire);
