/* k_log_scale.cu - log-scale payloads (backend/log_scale.h): exactly the bytes of every other
 * device.
 *
 * n_lanes lanes of a warp share a row: a power of two, about one lane per four bytes. Nibble 0 of a
 * row is the code of its scale, nibble i + 1 the code of value i. */
#include "backend/cuda/payload.cuh"
#include "backend/cuda/vector.cuh"
#include "backend/log_scale.h"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

/* The distance between neighbouring codes of a row, and its inverse. */
struct row_scale {
    float unit, inverse;
};

__device__ __forceinline__ row_scale scale_of(float top, int code, int is_covered) {
    const float scale = __fdiv_rn((code & 1) != 0 ? __fmul_rn(top, STRAIT_LOG_SCALE_HALF) : top,
                                  (float)(1 << (code >> 1)));
    const float unit = __fdiv_rn(scale, is_covered ? 7.5f : 8.0f);
    return {unit, unit > 0.0f ? __fdiv_rn(1.0f, unit) : 0.0f};
}

/* strait_log_scale_code, in parallel: the number of codes that its search passes. Scales decrease,
 * so the search passes exactly a prefix of the codes, and counting gives the same answer. */
__device__ __forceinline__ int scale_code(float top, float largest, int is_covered,
                                          const row_lane &at) {
    float passed = 0;
    for (int c = at.lane; c < STRAIT_LOG_SCALE_LAST; c += at.n_lanes)
        if (is_covered ? largest <= strait_log_scale_scale(top, c + 1)
                       : largest < strait_log_scale_scale(top, c) * STRAIT_LOG_SCALE_QUARTER)
            passed += 1.0f;
    return (int)warp_sum(passed, at.n_lanes);
}

/* The random words of four consecutive values, computed when the first of them is needed. */
struct row_words {
    int64_t drawn;
    uint32_t words[4];

    __device__ __forceinline__ uint32_t of(const strait_pack_params &params, int64_t i) {
        if (i / 4 != drawn) wire_draw(words, params, (uint64_t)(drawn = i / 4));
        const uint32_t even = (i & 2) != 0 ? words[2] : words[0],
                       odd = (i & 2) != 0 ? words[3] : words[1];
        return (i & 1) != 0 ? odd : even;
    }
};

__device__ __forceinline__ int code_of(float value, float inverse, const strait_pack_params &params,
                                       int64_t i, row_words *chances) {
    const float scaled = __fmul_rn(value, inverse);
    float code = __fadd_rn(floorf(scaled), 8.0f);
    if (params.is_stochastic) {
        const float chance = __fmul_rn((float)(chances->of(params, i) >> 8), 0x1p-24f);
        code = floorf(__fadd_rn(scaled, __fadd_rn(7.5f, chance)));
    }
    return (int)fminf(fmaxf(code, 0.0f), 15.0f);
}

__device__ __forceinline__ float restored(int code, float unit) {
    return __fmul_rn((float)code - 7.5f, unit);
}

/* A lane's sums over its part of a row. */
struct row_sums {
    float error, size, bad;
};

/* The top scale of the payload, from the maxima of its parts; in every thread. */
__device__ __forceinline__ float top_of(const float *of_block, int n_parts, float *shared) {
    float largest = 0;
    for (int i = (int)threadIdx.x; i < n_parts; i += THREADS)
        largest = fmaxf(largest, of_block[i]);
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
    __syncthreads();
    return strait_log_scale_top(
        warp_max(threadIdx.x % 32 < WARPS ? shared[threadIdx.x % 32] : 0.0f));
}

/* Values 8 w - 1 to 8 w + 6 of a row, which are the nibbles of word w; zeros outside the row. */
__device__ __forceinline__ void take_eight(float out[8], const float *row, int64_t w,
                                           int64_t cols) {
    const int64_t c = 8 * w - 1;
    out[0] = c >= 0 ? row[c] : 0.0f;
    if (c + 9 <= cols && at16(row + c + 1)) {
        float rest[8];
        take_floats<8>(rest, row + c + 1);
#pragma unroll
        for (int i = 1; i < 8; i++)
            out[i] = rest[i - 1];
        return;
    }
#pragma unroll
    for (int i = 1; i < 8; i++)
        out[i] = c + i < cols ? row[c + i] : 0.0f;
}

/* Packs nibbles 8 w to 8 w + 7 of a row, without the scale's own nibble. */
__device__ __forceinline__ uint32_t pack_word(const float v[8], int64_t w, int64_t first_value,
                                              const row_scale &scale,
                                              const strait_pack_params &params, row_sums *sums) {
    uint32_t word = 0;
    row_words chances = {-1, {}};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int64_t c = 8 * w + i - 1;
        if (c < 0 || c >= params.cols) continue;
        const float value = wire_value(v[i], &sums->bad);
        const int code = code_of(value, scale.inverse, params, first_value + c, &chances);
        const float error = value - restored(code, scale.unit);
        sums->error += error * error;
        sums->size += value * value;
        word |= (uint32_t)code << (4 * i);
    }
    return word;
}

/* of_block and of_row are the results of largest_of_rows, in n_parts blocks. params.cols columns
 * are packed. */
extern "C" __global__ void __launch_bounds__(THREADS)
    log_scale_pack(unsigned char *to, float *stats, const float *x, int64_t rows, int64_t stride,
                   strait_pack_params params, const float *of_block, const float *of_row,
                   int n_parts, int n_lanes) {
    __shared__ float shared[WARPS];
    const row_lane at = row_lane_of(rows, n_lanes);
    const bool is_row = at.row < rows;
    const float top = top_of(of_block, n_parts, shared);
    if (blockIdx.x == 0 && threadIdx.x == 0) put_bytes(to, __float_as_uint(top), 4);
    const int first = scale_code(top, is_row ? of_row[at.row] : 0.0f, params.is_stochastic, at);
    const row_scale scale = scale_of(top, first, params.is_stochastic);
    const int64_t n_bytes = (params.cols + 2) / 2;
    row_sums sums = {};
    for (int64_t w = at.lane; is_row && 4 * w < n_bytes; w += n_lanes) {
        float v[8];
        take_eight(v, x + at.row * stride, w, stride);
        uint32_t word = pack_word(v, w, at.row * params.cols, scale, params, &sums);
        if (w == 0) word |= (uint32_t)first;
        const int64_t left = n_bytes - 4 * w;
        put_bytes(to + 4 + at.row * n_bytes + 4 * w, word, left < 4 ? (int)left : 4);
    }
    put_stats(stats, at, sums.error, sums.size, sums.bad);
}

/* Stores the first n of eight values from column c on. */
template <typename T>
__device__ __forceinline__ void put_eight(T *row, const float in[8], int64_t c, int64_t n) {
    if (n >= 8 && at16(row + c)) {
#pragma unroll
        for (int i = 0; i < 8; i += wide<T>)
            put<T, wide<T>>(row + c + i, in + i);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < n) put<T, 1>(row + c + i, in + i);
}

/* The codes of eight values from c on: nibbles c + 1 to c + 8, that is seven of a word and one of
 * the next byte. */
__device__ __forceinline__ uint32_t take_codes(const unsigned char *bytes, int64_t c,
                                               int64_t n_bytes) {
    const int64_t b = c / 2, left = n_bytes - b;
    const uint32_t word = take_bytes(bytes + b, left < 4 ? (int)left : 4) >> 4;
    return left > 4 ? word | (uint32_t)bytes[b + 4] << 28 : word;
}

template <typename T>
__device__ __forceinline__ void restore(T *x, float *stats, const unsigned char *from,
                                        const row_lane &at, int64_t cols, int is_covered) {
    const bool is_row = at.row < at.rows;
    const int64_t n_bytes = (cols + 2) / 2;
    const float top = __uint_as_float(take_bytes(from, 4)), trusted = strait_scale_trust(top);
    const unsigned char *bytes = from + 4 + (is_row ? at.row : 0) * n_bytes;
    const float unit = scale_of(trusted, bytes[0] & 15, is_covered).unit;
    row_sums sums = {};
    for (int64_t c = 8 * at.lane; is_row && c < cols; c += 8 * at.n_lanes) {
        const uint32_t codes = take_codes(bytes, c, n_bytes);
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = c + i < cols ? restored((int)(codes >> (4 * i) & 15u), unit) : 0.0f;
            sums.size += v[i] * v[i];
            if (top != trusted && c + i < cols) sums.bad += 1.0f; // the received top was invalid
        }
        put_eight<T>(x, v, c, cols - c);
    }
    put_stats(stats, at, 0.0f, sums.size, sums.bad);
}

#define RESTORE_KERNEL(T, name)                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                     \
        log_scale_restore_##name(T *x, float *stats, const unsigned char *from, int64_t rows, \
                                 int64_t cols, int is_covered, int64_t stride, int n_lanes) { \
        const row_lane at = row_lane_of(rows, n_lanes);                                       \
        restore<T>(x + at.row * stride, stats, from, at, cols, is_covered);                   \
    }

RESTORE_KERNEL(float, f32)
RESTORE_KERNEL(bf16, bf16)
