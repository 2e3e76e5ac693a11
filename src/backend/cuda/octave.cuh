/* octave.cuh - rows at 4 bits a value and 4 bits a scale, as kernels read them. Nibble 0 of a row
 * is the scale's code, nibble i + 1 is value i. */
#pragma once

#include "backend/cuda/lanes.cuh"
#include "backend/cuda/wire.cuh"
#include "backend/octave.h"

/* The scale of a row's codes. */
struct row_scale {
    float unit, inverse;
};

__device__ __forceinline__ row_scale scale_of(float top, int code, int is_covered) {
    const float scale = __fdiv_rn((code & 1) != 0 ? __fmul_rn(top, STRAIT_OCTAVE_HALF) : top,
                                  (float)(1 << (code >> 1)));
    const float unit = __fdiv_rn(scale, is_covered ? 7.5f : 8.0f);
    return {unit, unit > 0.0f ? __fdiv_rn(1.0f, unit) : 0.0f};
}

__device__ __forceinline__ float restored(int code, float unit) {
    return __fmul_rn((float)code - 7.5f, unit);
}

/* Values from c on are nibbles from c + 1 on: those of a word but its first, and one behind it. */
__device__ __forceinline__ uint32_t take_codes(const unsigned char *bytes, int64_t c,
                                               int64_t n_bytes) {
    const int64_t b = c / 2, left = n_bytes - b;
    const uint32_t word = take_bytes(bytes + b, left < 4 ? (int)left : 4) >> 4;
    return left > 4 ? word | (uint32_t)bytes[b + 4] << 28 : word;
}

/* Values c to c + 7 of a row of so many columns from its bytes; zeros past its end. */
__device__ __forceinline__ void restore_eight(float out[8], const unsigned char *bytes, int64_t c,
                                              int64_t cols, float unit) {
    const uint32_t codes = take_codes(bytes, c, (cols + 2) / 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = c + i < cols ? restored((int)(codes >> (4 * i) & 15u), unit) : 0.0f;
}
