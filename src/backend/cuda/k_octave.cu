/* k_octave.cu - rows at 4 bits a value and 4 bits a scale, to the same bytes as on any other
 * device.
 *
 * A warp a row; a lane makes a byte at a time: nibbles 2b and 2b + 1 of the row, of which the first
 * of all is the scale's code and nibble i + 1 is value i. */
#include "backend/cuda/lanes.cuh"
#include "backend/cuda/wire.cuh"
#include "backend/octave.h"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

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

/* strait_octave_code by a whole warp: lane c says whether the search would go past code c. */
__device__ __forceinline__ int octave_code(float top, float largest, int is_covered) {
    const int c = (int)threadIdx.x % 32 < STRAIT_OCTAVE_LAST ? (int)threadIdx.x % 32
                                                             : STRAIT_OCTAVE_LAST;
    const bool goes_on = c < STRAIT_OCTAVE_LAST &&
                         (is_covered
                              ? largest <= strait_octave_scale(top, c + 1)
                              : largest < strait_octave_scale(top, c) * STRAIT_OCTAVE_QUARTER);
    return __ffs((int)__ballot_sync(0xffffffffu, !goes_on)) - 1;
}

/* Random words of four values in a row of the tensor, drawn when the first of them is asked for. */
struct row_words {
    int64_t drawn;
    uint32_t words[4];

    __device__ __forceinline__ uint32_t of(const strait_pack_how &how, int64_t i) {
        if (i / 4 != drawn) wire_draw(words, how, (uint64_t)(drawn = i / 4));
        const uint32_t even = (i & 2) != 0 ? words[2] : words[0],
                       odd = (i & 2) != 0 ? words[3] : words[1];
        return (i & 1) != 0 ? odd : even;
    }
};

__device__ __forceinline__ int code_of(float value, float inverse, const strait_pack_how &how,
                                       int64_t i, row_words *chances) {
    const float scaled = __fmul_rn(value, inverse);
    float code = __fadd_rn(floorf(scaled), 8.0f);
    if (how.is_stochastic) {
        const float chance = __fmul_rn((float)(chances->of(how, i) >> 8), 0x1p-24f);
        code = floorf(__fadd_rn(scaled, __fadd_rn(7.5f, chance)));
    }
    return (int)fminf(fmaxf(code, 0.0f), 15.0f);
}

__device__ __forceinline__ float restored(int code, float unit) {
    return __fmul_rn((float)code - 7.5f, unit);
}

/* What a lane adds up over its part of a row. */
struct row_sums {
    float error, size, bad;
};

/* A warp's sums into the row's stats; every lane of the warp calls. */
__device__ __forceinline__ void put_sums(float *stats, int64_t row, row_sums sums) {
    sums.error = warp_sum(sums.error);
    sums.size = warp_sum(sums.size);
    sums.bad = warp_sum(sums.bad);
    if (stats == nullptr || threadIdx.x % 32 != 0) return;
    stats[row * 3] += sums.error;
    stats[row * 3 + 1] += sums.size;
    stats[row * 3 + 2] += sums.bad;
}

/* The top of the crossing, from the largest of its parts; in every thread. */
__device__ __forceinline__ float top_of(const float *of_block, int n_parts, float *room) {
    float largest = 0;
    for (int i = (int)threadIdx.x; i < n_parts; i += THREADS)
        largest = fmaxf(largest, of_block[i]);
    largest = warp_max(largest);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = largest;
    __syncthreads();
    return strait_octave_top(warp_max(threadIdx.x % 32 < WARPS ? room[threadIdx.x % 32] : 0.0f));
}

/* of_block and of_row are what largest_of_rows found, in n_parts blocks. Columns that cross are in
 * how. */
extern "C" __global__ void __launch_bounds__(THREADS)
    pack_octaves(unsigned char *to, float *stats, const float *x, int64_t rows, int64_t stride,
                 strait_pack_how how, const float *of_block, const float *of_row, int n_parts) {
    __shared__ float room[WARPS];
    const int64_t cols = how.cols;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const float top = top_of(of_block, n_parts, room);
    if (row == 0 && threadIdx.x == 0) put_bytes(to, __float_as_uint(top), 4);
    if (row >= rows) return;
    const int first = octave_code(top, of_row[row], how.is_stochastic);
    const row_scale scale = scale_of(top, first, how.is_stochastic);
    const int64_t n_bytes = (cols + 2) / 2;
    row_sums sums = {};
    row_words chances = {-1, {}};
    for (int64_t b = threadIdx.x % 32; b < n_bytes; b += 32) {
        uint32_t byte = b == 0 ? (uint32_t)first : 0u;
        for (int half = b == 0; half < 2; half++) {
            const int64_t c = 2 * b + half - 1;
            if (c >= cols) continue;
            const float value = wire_value(x[row * stride + c], &sums.bad);
            const int code = code_of(value, scale.inverse, how, row * cols + c, &chances);
            const float error = value - restored(code, scale.unit);
            sums.error += error * error;
            sums.size += value * value;
            byte |= (uint32_t)code << (4 * half);
        }
        to[4 + row * n_bytes + b] = (unsigned char)byte;
    }
    put_sums(stats, row, sums);
}

template <typename T>
__device__ __forceinline__ void restore(T *x, float *stats, const unsigned char *from, int64_t row,
                                        int64_t cols, int is_covered) {
    const float top = __uint_as_float(take_bytes(from, 4)), trusted = strait_scale_trust(top);
    const unsigned char *bytes = from + 4 + row * ((cols + 2) / 2);
    const float unit = scale_of(trusted, bytes[0] & 15, is_covered).unit;
    row_sums sums = {};
    for (int64_t c = threadIdx.x % 32; c < cols; c += 32) {
        const int code = bytes[(c + 1) / 2] >> ((c & 1) != 0 ? 0 : 4) & 15;
        const float value = restored(code, unit);
        put<T, 1>(x + c, &value);
        sums.size += value * value;
        if (top != trusted) sums.bad += 1.0f; // bits that are no top at all
    }
    put_sums(stats, row, sums);
}

#define RESTORE_KERNEL(T, name)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                   \
        restore_octaves_##name(T *x, float *stats, const unsigned char *from, int64_t rows, \
                               int64_t cols, int is_covered, int64_t stride) {              \
        const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;                 \
        if (row < rows) restore<T>(x + row * stride, stats, from, row, cols, is_covered);   \
    }

RESTORE_KERNEL(float, f32)
RESTORE_KERNEL(bf16, bf16)
