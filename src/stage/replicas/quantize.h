/* quantize.h - gradients in 8 or 4 bits, with error feedback, for links between replicas.
 *
 * Blocks of STRAIT_QUANTIZE_BLOCK values share a scale, the largest magnitude of the block divided
 * by the largest code: an f32 (little-endian), then the codes, two's complement, at 4 bits the
 * first of two in the low half. What rounding loses is kept in a residual and added the next time,
 * so that nothing is lost in the long run. Pure functions of their arguments, on the host. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_QUANTIZE_BLOCK = 256
};

/* Bytes of n values; bits is 32 (plain floats), 8 or 4. */
size_t strait_quantized_bytes(int bits, int64_t n);

/* Writes x + residual in `bits` to `out` and what that loses to `residual`. A block with a value
 * that is not finite is read back as NaN, and its residual becomes 0. */
void strait_quantize(int bits, const float *x, float *residual, int64_t n, unsigned char *out);

/* Reads n values back. */
void strait_dequantize(int bits, const unsigned char *in, int64_t n, float *out);
