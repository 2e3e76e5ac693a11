/* k_fp8.cu - bf16 tensors rounded to 8 bits, as they are or transposed: cublasLt wants both factors
 * with the inner size contiguous. */
#include "backend/cuda/k_fp8.h"
#include "backend/cuda/vector.cuh"
#include "backend/fp8.h"

constexpr int THREADS = STRAIT_CUDA_FP8_THREADS;
constexpr int ROWS = STRAIT_CUDA_FP8_ROWS;
constexpr int COLS = STRAIT_CUDA_FP8_COLS;

using fp8_head = strait_cuda_fp8_head;

/* The larger of both bf16 magnitudes, half by half; a NaN counts as larger than infinity. */
__device__ __forceinline__ uint32_t larger(uint32_t most, uint32_t pair) {
    return __vmaxu2(most, pair & 0x7fff7fffu);
}

/* The largest magnitude of both factors; blockIdx.y says which. The order of the atomics does not
 * matter to a maximum. */
extern "C" __global__ void __launch_bounds__(THREADS)
    fp8_largest(fp8_head *head, const bf16 *a, int64_t n_a, const bf16 *b, int64_t n_b) {
    __shared__ uint32_t shared;
    const uint4 *x = (const uint4 *)(blockIdx.y == 0 ? a : b);
    const int64_t n = (blockIdx.y == 0 ? n_a : n_b) / 8;
    uint32_t most = 0;
    if (threadIdx.x == 0) shared = 0;
    __syncthreads();
#pragma unroll 4
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS) {
        const uint4 v = x[i];
        most = larger(larger(larger(larger(most, v.x), v.y), v.z), v.w);
    }
    most = max(most >> 16, most & 0xffffu);
    for (int offset = 16; offset > 0; offset /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
    if (threadIdx.x % 32 == 0) atomicMax(&shared, most);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&head->of[blockIdx.y].largest, shared);
}

/* Two values as codes, the first in the low byte. */
template <bool is_gradient> __device__ __forceinline__ uint32_t codes(float low, float high) {
    uint16_t both = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if (is_gradient)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
#else
    __trap(); // the host does not launch these kernels on such a device
#endif
    return both;
}

/* What values of a factor are multiplied by, and whether any of them is non-finite: those become
 * NaN, which the conversion would replace by the largest number. */
struct rounding {
    float factor;
    bool is_checked;
};

template <bool is_gradient>
__device__ __forceinline__ rounding rounding_of(fp8_head *head, int which, bool is_first) {
    const float largest = __uint_as_float(head->of[which].largest << 16);
    const int power = strait_fp8_exponent(largest, is_gradient);
    if (is_first) head->of[which].value = ldexpf(1.0f, -power);
    return {ldexpf(1.0f, power), !isfinite(largest)};
}

__device__ __forceinline__ void scale(float v[8], rounding r) {
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = r.is_checked && !isfinite(v[i]) ? NAN : v[i] * r.factor;
}

template <bool is_gradient> __device__ __forceinline__ uint2 codes_of_eight(const float v[8]) {
    return make_uint2(codes<is_gradient>(v[0], v[1]) | codes<is_gradient>(v[2], v[3]) << 16,
                      codes<is_gradient>(v[4], v[5]) | codes<is_gradient>(v[6], v[7]) << 16);
}

/* y = the codes of x, in the same order; n is a multiple of 16. */
template <bool is_gradient>
__device__ __forceinline__ void round_rows(uint4 *y, const bf16 *x, fp8_head *head, int which,
                                           int64_t n) {
    const bool is_first = blockIdx.x == 0 && threadIdx.x == 0;
    const rounding r = rounding_of<is_gradient>(head, which, is_first);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n / 16;
         i += (int64_t)gridDim.x * THREADS) {
        float v[16];
        take<bf16, 8>(v, x + i * 16);
        take<bf16, 8>(v + 8, x + i * 16 + 8);
        scale(v, r);
        scale(v + 8, r);
        const uint2 low = codes_of_eight<is_gradient>(v);
        const uint2 high = codes_of_eight<is_gradient>(v + 8);
        y[i] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

/* Four bytes of column c, one of each of four words, the first word's in the low byte. */
__device__ __forceinline__ uint32_t column_of(const uint2 words[4], int c) {
    const uint32_t selector = (uint32_t)(c % 4) | (uint32_t)(c % 4 + 4) << 4;
    const bool is_high = c >= 4;
    const uint32_t low = __byte_perm(is_high ? words[0].y : words[0].x,
                                     is_high ? words[1].y : words[1].x, selector);
    const uint32_t high = __byte_perm(is_high ? words[2].y : words[2].x,
                                      is_high ? words[3].y : words[3].x, selector);
    return (low & 0xffffu) | high << 16;
}

/* y [cols x rows] = the codes of x [rows x cols], transposed. A block takes a tile: a thread reads
 * four rows of eight columns and leaves, for each column, a word of four rows in shared memory;
 * then whole warps write columns. */
template <bool is_gradient>
__device__ __forceinline__ void round_columns(uint8_t *y, const bf16 *x, fp8_head *head, int which,
                                              int64_t rows, int64_t cols) {
    __shared__ uint32_t tile[COLS][ROWS / 4 + 1];
    const bool is_first = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
    const rounding r = rounding_of<is_gradient>(head, which, is_first);
    const int column = (int)(threadIdx.x % 8) * 8, four = (int)threadIdx.x / 8;
    const int64_t first_row = (int64_t)blockIdx.x * ROWS, first_col = (int64_t)blockIdx.y * COLS;
    const int64_t row = first_row + four * 4, col = first_col + column;
    if (row < rows && col < cols) {
        uint2 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float v[8];
            take<bf16, 8>(v, x + (row + i) * cols + col);
            scale(v, r);
            words[i] = codes_of_eight<is_gradient>(v);
        }
#pragma unroll
        for (int c = 0; c < 8; c++)
            tile[column + c][four] = column_of(words, c);
    }
    __syncthreads();
    const int lane = (int)threadIdx.x % 32;
    for (int c = (int)threadIdx.x / 32; c < COLS && first_col + c < cols; c += THREADS / 32)
        if (first_row + lane * 4 < rows)
            *(uint32_t *)(y + (first_col + c) * rows + first_row + lane * 4) = tile[c][lane];
}

#define ROUND(suffix, is_gradient)                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                   \
        fp8_rows_##suffix(uint4 *y, const bf16 *x, fp8_head *head, int which, int64_t n) {  \
        round_rows<is_gradient>(y, x, head, which, n);                                      \
    }                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS) fp8_columns_##suffix(             \
        uint8_t *y, const bf16 *x, fp8_head *head, int which, int64_t rows, int64_t cols) { \
        round_columns<is_gradient>(y, x, head, which, rows, cols);                          \
    }

ROUND(e4m3, false)
ROUND(e5m2, true)
