/* floats.h - weights in the number formats of model files: f32, f16 and bf16.
 *
 * Checkpoints of this program hold f32. Widening is exact, so that a model that was stored in a
 * narrow format and is stored in it again has the same bytes. All functions are pure. */
#pragma once

#include "tensor/tensor.h"

#include <stddef.h>
#include <stdint.h>

/* The format that safetensors files call `name` ("F32", "F16", "BF16"). Returns whether it is one
 * of the three. */
int strait_floats_format(const char *name, strait_dtype *out);

/* Converts n values, little-endian and unaligned, to f32. */
void strait_floats_widen(float *out, const unsigned char *from, strait_dtype format, int64_t n);

/* Converts n values to a format, rounded to nearest, ties to even. `out` may be the memory of
 * `from`. Values too large for f16 become infinite: see strait_floats_overflow. */
void strait_floats_narrow(unsigned char *out, const float *from, strait_dtype format, int64_t n);

/* The shortest decimal number that reads back the same bits, "1e-05" rather than "9.99999975e-06".
 */
void strait_floats_text(float value, char out[32]);

/* The index of the first value that is not finite; -1: all are. */
int64_t strait_floats_first_nonfinite(const float *values, int64_t n);

/* The index of the first value that a format cannot hold; -1: all fit. Only f16 is so narrow. */
int64_t strait_floats_overflow(const float *values, strait_dtype format, int64_t n);
