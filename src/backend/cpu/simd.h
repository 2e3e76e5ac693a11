/* simd.h - vectors of the instruction set that a file is compiled for.
 *
 * The simd_*.c files are compiled once per instruction set in CMakeLists.txt, with STRAIT_ISA
 * naming it. Everything here is static: the linker must not pick a copy compiled for a newer set.
 *
 * A kernel splits its work into tasks by shape alone and sums in an order fixed by the shape, so
 * bits do not depend on the number of threads. They do depend on the instruction set.
 *
 * Files with activations are compiled a second time with STRAIT_HALF: activations (`act`) are then
 * bf16. They are converted to f32 when they are loaded and rounded once when they are stored; all
 * arithmetic stays f32. */
#pragma once

#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    #include <arm_neon.h>
#endif

#define SIMD_JOIN(name, isa)   strait_simd_##name##_##isa
#define SIMD_EXPAND(name, isa) SIMD_JOIN(name, isa)
#define SIMD(name)             SIMD_EXPAND(name, STRAIT_ISA)

/* The type of activations of this copy of the kernels. */
#if defined(STRAIT_HALF)
typedef uint16_t act;
    #define ACT_IS_HALF 1
#else
typedef float act;
    #define ACT_IS_HALF 0
#endif

/* The activations of a tensor; NULL when it is absent. */
static inline act *act_of(strait_tensor t) {
    assert(t.data == NULL || t.dtype == (ACT_IS_HALF ? STRAIT_BF16 : STRAIT_F32));
    return t.data;
}

static inline float same_f32(float value) {
    return value;
}

static inline void put_f32(float *to, float value) {
    *to = value;
}

static inline void put_half(uint16_t *to, float value) {
    *to = strait_cpu_round(value);
}

// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses): read as functions
/* One value of either type as f32, and one f32 stored as either type. */
#define get(value)     _Generic((value), float : same_f32, uint16_t : strait_cpu_widen)(value)
#define put(to, value) _Generic((to), float * : put_f32, uint16_t * : put_half)(to, value)
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)

/* Before a loop whose iterations are independent although its pointers may be equal: iteration i
 * touches only index i, so in-place use is safe to vectorise. */
#if defined(__clang__)
    #define SIMD_EACH_ITS_OWN // clang compares the pointers at run time
#else
    #define SIMD_EACH_ITS_OWN _Pragma("GCC ivdep")
#endif

/* A vector has LANES floats. A tile of a matrix product is TILE_ROWS x (TILE_VECTORS * LANES) and
 * fills the registers: rows x vectors sums, one row of vectors, and one value of the other side.
 * One pass covers TILE_DEPTH of the inner dimension, so that TILE_COLS columns of the right side
 * stay in the L1 cache. All are 64 bits wide because offsets are computed from them. */
#if defined(__AVX512F__)
    #define LANES        INT64_C(16)
    #define TILE_ROWS    INT64_C(12)
    #define TILE_VECTORS INT64_C(2)
    #define TILE_DEPTH   INT64_C(256)
#elif defined(__AVX2__)
    #define LANES        INT64_C(8)
    #define TILE_ROWS    INT64_C(6)
    #define TILE_VECTORS INT64_C(2)
    #define TILE_DEPTH   INT64_C(256)
#elif defined(__aarch64__)
    #define LANES        INT64_C(4)
    #define TILE_ROWS    INT64_C(8)
    #define TILE_VECTORS INT64_C(3)
    #define TILE_DEPTH   INT64_C(512)
#else
    #define LANES        INT64_C(4)
    #define TILE_ROWS    INT64_C(4)
    #define TILE_VECTORS INT64_C(2)
    #define TILE_DEPTH   INT64_C(256)
#endif

#define TILE_COLS (TILE_VECTORS * LANES)

/* Values per elementwise task: enough to be worth handing to a thread. */
#define TASK_VALUES INT64_C(16384)

enum {
    BLOCKS_MAX = 64 // most tasks of a kernel whose tasks leave partial sums
};

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
/* Memory need only be aligned like a float. */
typedef float loose_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef uint16_t hvec __attribute__((vector_size(2 * LANES)));
typedef uint16_t loose_hvec __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

static inline vec load_f32(const float *from) {
    return *(const loose_vec *)from;
}

static inline void store_f32(float *to, vec v) {
    *(loose_vec *)to = v;
}

/* Exact: bf16 is the upper half of an f32. */
static inline vec load_half(const uint16_t *from) {
    const hvec halves = *(const loose_hvec *)from;
    return (vec)(__builtin_convertvector(halves, uvec) << 16);
}

/* Rounds to nearest, half to even; same bits as strait_cpu_round. */
static inline void store_half(uint16_t *to, vec v) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    vst1_u16(to, vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)v)));
#else
    const uvec bits = (uvec)v;
    const uvec rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uvec is_nan = (uvec)(v != v); // NOLINT(misc-redundant-expression): NaN
    const uvec halves = (is_nan & (bits >> 16 | 0x40u)) | (~is_nan & rounded);
    *(loose_hvec *)to = __builtin_convertvector(halves, hvec);
#endif
}

/* The first n < LANES values, then zeros. Not memcpy: a call, though rare, would evict every
 * constant of the surrounding loop from its register. */
static inline vec load_part_f32(const float *from, int64_t n) {
    vec v = {0};
#pragma GCC unroll 16
    for (int i = 0; i < LANES - 1; i++)
        if (i < n) v[i] = from[i];
    return v;
}

static inline vec load_part_half(const uint16_t *from, int64_t n) {
    vec v = {0};
#pragma GCC unroll 16
    for (int i = 0; i < LANES - 1; i++)
        if (i < n) v[i] = strait_cpu_widen(from[i]);
    return v;
}

static inline void store_part_f32(float *to, vec v, int64_t n) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES - 1; i++)
        if (i < n) to[i] = v[i];
}

static inline void store_part_half(uint16_t *to, vec v, int64_t n) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES - 1; i++)
        if (i < n) to[i] = strait_cpu_round(v[i]);
}

/* A whole vector, or the last `left` values of a row. */
static inline vec load_some_f32(const float *from, int64_t left) {
    return left >= LANES ? load_f32(from) : load_part_f32(from, left);
}

static inline vec load_some_half(const uint16_t *from, int64_t left) {
    return left >= LANES ? load_half(from) : load_part_half(from, left);
}

static inline void store_some_f32(float *to, vec v, int64_t left) {
    if (left >= LANES)
        store_f32(to, v);
    else
        store_part_f32(to, v, left);
}

static inline void store_some_half(uint16_t *to, vec v, int64_t left) {
    if (left >= LANES)
        store_half(to, v);
    else
        store_part_half(to, v, left);
}

// NOLINTBEGIN(readability-identifier-naming, bugprone-macro-parentheses): read as functions
/* The function of the pair that fits the type behind a pointer. */
#define BY_TYPE(of, f32, half) \
    _Generic((of), float * : f32, const float * : f32, uint16_t * : half, const uint16_t * : half)

#define load(from)              BY_TYPE(from, load_f32, load_half)(from)
#define load_part(from, n)      BY_TYPE(from, load_part_f32, load_part_half)(from, n)
#define load_some(from, left)   BY_TYPE(from, load_some_f32, load_some_half)(from, left)
#define store(to, v)            BY_TYPE(to, store_f32, store_half)(to, v)
#define store_some(to, v, left) BY_TYPE(to, store_some_f32, store_some_half)(to, v, left)
// NOLINTEND(readability-identifier-naming, bugprone-macro-parentheses)

/* value in every lane; value - 0 keeps the bits of every value, -0 included. */
static inline vec splat(float value) {
    return value - (vec){0};
}

/* yes where the mask is set, else no; bit by bit, so that NaNs pass unchanged. */
static inline vec choose(ivec mask, vec yes, vec no) {
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

static inline vec larger(vec a, vec b) {
    return choose(a > b, a, b);
}

/* v in the first n lanes, `other` in the rest. */
static inline vec lanes_below(vec v, int64_t n, float other) {
    for (int64_t i = n; i < LANES; i++)
        v[i] = other;
    return v;
}

static inline vec vec_sqrt(vec v) {
    for (int i = 0; i < LANES; i++)
        v[i] = sqrtf(v[i]);
    return v;
}

/* The sum of all lanes, by halves: an order that depends on LANES alone. */
static inline float sum_lanes(vec v) {
    float sum[LANES];
    memcpy(sum, &v, sizeof v);
    for (int64_t width = LANES / 2; width > 0; width /= 2)
        for (int64_t i = 0; i < width; i++)
            sum[i] += sum[i + width];
    return sum[0];
}

/* The sum of a[i] * b[i], in four accumulators that hide the latency of fused products. */
static inline float dot(const act *a, const act *b, int64_t n) {
    vec sum[4] = {0};
    int64_t k = 0;
    for (; k + 4 * LANES <= n; k += 4 * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            sum[u] += load(a + k + u * LANES) * load(b + k + u * LANES);
    for (; k + LANES <= n; k += LANES)
        sum[0] += load(a + k) * load(b + k);
    if (k < n) sum[1] += load_part(a + k, n - k) * load_part(b + k, n - k);
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static inline float max_lanes(vec v) {
    float max = v[0];
    for (int i = 1; i < LANES; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

/* exp(x) for -87.33 <= x <= 88.37 or NaN, to about one unit in the last place.
 *
 * x = n ln 2 + r, |r| <= ln 2 / 2; the coefficients minimise the relative error of the polynomial
 * over that range (3e-9). ln 2 is split in two constants so that r keeps its low bits. */
static inline vec exp_inside(vec x) {
    const float magic = 0x1.8p23f; // adding it leaves the rounded integer in the low bits
    const vec shifted = x * 0x1.715476p0f + magic;
    const vec n = shifted - magic;
    const vec r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    const vec r2 = r * r;
    const vec high = r2 * 0.0013814519437716649f +
                     (r * 0.008368747268979487f + 0.04166839122418311f);
    const vec low = r * 0.16666520375793178f + 0.4999999342990002f;
    const vec p = ((high * r2 + low) * r2 + r) + 1.0f;
    return p * (vec)(((ivec)shifted << 23) + 0x3f800000);
}

/* exp(x) for x <= 0; NaN stays NaN. Below -87.33 it is 0, so that no result is subnormal: some
 * processors compute those slowly. */
static inline vec exp_down(vec x) {
    const ivec is_low = x < -87.33f;
    return (vec)(~is_low & (ivec)exp_inside(choose(is_low, splat(-87.33f), x)));
}

/* exp(x) for any x; infinite above 88.37. */
static inline vec vec_exp(vec x) {
    const ivec is_high = x > 88.37f;
    return choose(is_high, splat(INFINITY), exp_down(choose(is_high, splat(88.37f), x)));
}

/* How many pieces of `size` cover n. */
static inline int64_t pieces(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Rows per task, so that a task has about TASK_VALUES values. */
static inline int64_t task_rows(int64_t cols) {
    return cols >= TASK_VALUES ? 1 : TASK_VALUES / (cols > 0 ? cols : 1);
}

/* Rows per task where each task leaves `cols` partial sums: those of all tasks fit cpu->left. It
 * depends on the shape alone, and so does the order of the sums. */
static inline int64_t block_rows(int64_t rows, int64_t cols) {
    const int64_t n_blocks = smaller(BLOCKS_MAX, STRAIT_CPU_LEFT / cols);
    return pieces(rows, n_blocks > 0 ? n_blocks : 1);
}

/* Adds the partial sums of all blocks to `to`, from the first block to the last. */
static inline void add_blocks(float *to, const float *blocks, int64_t n_blocks, int64_t cols) {
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0;
        for (int64_t b = 0; b < n_blocks; b++)
            sum += (double)blocks[b * cols + c];
        to[c] += (float)sum;
    }
}

/* Each replaces reference loops of one family in the set. */
void SIMD(matmul)(struct strait_kernel_set *set);
void SIMD(attention)(struct strait_kernel_set *set);
void SIMD(attention_back)(struct strait_kernel_set *set);
void SIMD(elementwise)(struct strait_kernel_set *set);
void SIMD(cast)(struct strait_kernel_set *set);
void SIMD(sample)(struct strait_kernel_set *set);
void SIMD(embed)(struct strait_kernel_set *set);
void SIMD(norm)(struct strait_kernel_set *set);
void SIMD(rotate)(struct strait_kernel_set *set);
void SIMD(mlp)(struct strait_kernel_set *set);
void SIMD(loss)(struct strait_kernel_set *set);
void SIMD(optim)(struct strait_kernel_set *set);
void SIMD(payload)(struct strait_kernel_set *set);
void SIMD(codec)(struct strait_kernel_set *set);
void SIMD(conv)(struct strait_kernel_set *set);
