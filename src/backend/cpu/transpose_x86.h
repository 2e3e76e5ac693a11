/* transpose_x86.h - exchanges rows and columns of 16 x 16 values of 32 bits, for packing. Include
 * it only where files are compiled for avx512. */
#pragma once

#include <immintrin.h>

/* Within groups of four, then the groups. */
static inline void strait_transpose(__m512i v[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        const __m512i b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
        const __m512i d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
        v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}
