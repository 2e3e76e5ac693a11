/* quantize.h - values in 8, 4 or 2 bits, with error feedback, for links between replicas.
 *
 * Blocks of STRAIT_QUANTIZE_BLOCK values share a scale: an f32 (little-endian), then the codes,
 * two's complement, the first in the lowest bits of a byte. At 8 and 4 bits a value is code x
 * scale, and the scale is the largest magnitude of the block divided by the largest code. Four
 * levels are too few for that: at 2 bits a value is (code + 1/2) x scale, and the scale is 5/4 of
 * the mean magnitude, which is best for normally distributed values; larger ones are cut off and
 * come with the next messages. What rounding loses is kept in a residual and added the next time,
 * so that nothing is lost in the long run. Pure functions of their arguments, on the host. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_QUANTIZE_BLOCK = 256
};

/* Bytes of n values; bits is 32 (plain floats), 8, 4 or 2. */
size_t strait_quantized_bytes(int bits, int64_t n);

/* Writes x + residual in `bits` to `out` and what that loses to `residual`. A block with a value
 * that is not finite is read back as NaN, and its residual becomes 0. */
void strait_quantize(int bits, const float *x, float *residual, int64_t n, unsigned char *out);

/* Reads n values back. */
void strait_dequantize(int bits, const unsigned char *in, int64_t n, float *out);
