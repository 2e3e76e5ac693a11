/* cpu.h - declarations that the files of the cpu backend share.
 *
 * Each ref_*.c and simd_*.c exports one function that writes its family's entries into a set of
 * kernels: the reference loops first, then the fastest versions that this processor supports. */
#pragma once

#include "backend/backend.h"
#include "backend/kernel_set.h"
#include "base/pool.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    STRAIT_CPU_LEFT = 2 << 20,      // floats of packed left panels of a matrix product
    STRAIT_CPU_RIGHT = 1 << 20,     // floats of packed right panels
    STRAIT_CPU_SCRATCH = 5 << 16,   // floats per thread, for one item of attention
    STRAIT_CPU_SUMS = 1 << 20,      // floats of a bf16 product before it is rounded
    STRAIT_CPU_HALF_RUN = 1 << 18,  // floats of sums of gradients of bf16 keys, and of values
    STRAIT_CPU_HALF_MORE = 1 << 16, // floats of operands of bf16 units beside those of f32
    STRAIT_CPU_HALF_SCRATCH = 2 * STRAIT_CPU_HALF_RUN + STRAIT_CPU_HALF_MORE, // more per thread
    STRAIT_CPU_HEAD_MAX = 256 // widest attention head
};

struct strait_bf16_units;

/* The state of a cpu device. Kernels run one at a time: they share the pool and the panels. */
struct strait_cpu {
    struct strait_pool *pool;
    float *left, *right;   // packed panels; left also holds partial sums of blocks of rows
    float *sums;           // STRAIT_CPU_SUMS floats; bf16 only
    float *scratch;        // thread_floats per thread
    int64_t thread_floats; // STRAIT_CPU_SCRATCH, and with bf16 STRAIT_CPU_HALF_SCRATCH more
    /* Instructions for bf16 products that this processor has; NULL: bf16 becomes f32 first. */
    const struct strait_bf16_units *units;
    /* With bf16 `kernels` selects, by the types of its tensors, an entry of one of the others. */
    struct strait_kernel_set kernels, f32, half;
    char description[STRAIT_BACKEND_KERNELS + 32];
};

/* An instruction set and the kernels compiled for it. */
struct strait_isa {
    const char *name;
    int (*is_supported)(void); // by the processor we run on
    void (*fill)(struct strait_kernel_set *set);
    void (*fill_half)(struct strait_kernel_set *set); // the same with bf16 activations
};

/* Instruction sets this build has code for, the fastest last, ended by an entry without a name. */
extern const struct strait_isa strait_isas[];

/* Fills set->base and the optional tables with entries that select, by the types of their tensors,
 * one of cpu->f32 and cpu->half. */
void strait_cpu_by_type(struct strait_kernel_set *set);

/* Reference loops: one thread, sums in double precision. They define what every kernel computes. */
void strait_ref_elementwise(struct strait_kernel_set *set);
void strait_ref_matmul(struct strait_kernel_set *set);
void strait_ref_embed(struct strait_kernel_set *set);
void strait_ref_norm(struct strait_kernel_set *set);
void strait_ref_rotate(struct strait_kernel_set *set);
void strait_ref_attention(struct strait_kernel_set *set);
void strait_ref_mlp(struct strait_kernel_set *set);
void strait_ref_loss(struct strait_kernel_set *set);
void strait_ref_sample(struct strait_kernel_set *set);
void strait_ref_optim(struct strait_kernel_set *set);
void strait_ref_payload(struct strait_kernel_set *set);
void strait_ref_codec(struct strait_kernel_set *set);
void strait_ref_conv(struct strait_kernel_set *set);
void strait_ref_columns(struct strait_kernel_set *set);
void strait_ref_log_scale(struct strait_kernel_set *set);
void strait_ref_autoencoder(struct strait_kernel_set *set);
void strait_ref_fp8(struct strait_kernel_set *set);
void strait_ref_groups(struct strait_kernel_set *set);
void strait_ref_norm_conv(struct strait_kernel_set *set);
void strait_ref_conv_rotate(struct strait_kernel_set *set);
void strait_ref_token_table(struct strait_kernel_set *set);

/* The values of an f32 tensor; NULL when it is absent. */
static inline float *strait_cpu_f32(strait_tensor t) {
    assert(t.data == NULL || t.dtype == STRAIT_F32);
    return t.data;
}

/* bf16 bits of a value, rounded to nearest, half to even. A NaN keeps its upper bits: rounding
 * could carry it into infinity. */
static inline uint16_t strait_cpu_round(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const int is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(is_nan ? bits >> 16 | 0x40u : rounded);
}

/* Exact: bf16 is the upper half of an f32. */
static inline float strait_cpu_widen(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Value i of a tensor of either type: for reference loops, which serve both. */
static inline float strait_cpu_get(strait_tensor t, int64_t i) {
    assert(t.dtype == STRAIT_F32 || t.dtype == STRAIT_BF16);
    return t.dtype == STRAIT_BF16 ? strait_cpu_widen(((const uint16_t *)t.data)[i])
                                  : ((const float *)t.data)[i];
}

static inline void strait_cpu_put(strait_tensor t, int64_t i, float value) {
    assert(t.dtype == STRAIT_F32 || t.dtype == STRAIT_BF16);
    if (t.dtype == STRAIT_BF16)
        ((uint16_t *)t.data)[i] = strait_cpu_round(value);
    else
        ((float *)t.data)[i] = value;
}

static inline void strait_cpu_add(strait_tensor t, int64_t i, float value) {
    strait_cpu_put(t, i, strait_cpu_get(t, i) + value);
}

static inline const int32_t *strait_cpu_i32(strait_tensor t) {
    assert(t.data == NULL || t.dtype == STRAIT_I32);
    return t.data;
}

static inline int64_t strait_cpu_count(strait_tensor t) {
    return t.rows * t.cols;
}

/* Whether a scale carries a non-finite gradient norm: the update must then change nothing. */
static inline int strait_cpu_has_nonfinite_norm(strait_tensor scale) {
    return scale.data != NULL && strait_cpu_count(scale) > 1 &&
           !isfinite(((const float *)scale.data)[1]);
}

static inline int strait_cpu_same_shape(strait_tensor a, strait_tensor b) {
    return a.rows == b.rows && a.cols == b.cols;
}

static inline struct strait_pool *strait_cpu_pool(const struct strait_stream *s) {
    return ((const struct strait_cpu *)s->backend->state)->pool;
}

/* Columns of queries, keys and values together, per token. */
static inline int64_t strait_cpu_qkv_cols(strait_heads h) {
    return (int64_t)(h.n_query + 2 * h.n_key) * h.head_dim;
}

/* Kernels keep one head on the stack or in scratch, so its width is bounded. */
static inline strait_err strait_cpu_refuse_wide(strait_heads h) {
    if (h.head_dim <= STRAIT_CPU_HEAD_MAX) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "attention on cpu: heads are %d wide, at most %d are supported", h.head_dim,
                       STRAIT_CPU_HEAD_MAX);
}

/* The sequence of row i, or a negative number; and its position in it. */
static inline int64_t strait_cpu_sequence(strait_cached_rows at, int64_t i) {
    return ((const int32_t *)at.sequences.data)[i];
}

static inline int64_t strait_cpu_position(strait_cached_rows at, int64_t i) {
    return ((const int32_t *)at.positions.data)[i];
}

/* Stores the key and value of each row of qkv at its position of its sequence's cache. */
static inline void strait_cpu_cache(strait_tensor keys, strait_tensor values, strait_tensor qkv,
                                    strait_cached_rows at, strait_heads h) {
    const size_t size = strait_dtype_bytes(qkv.dtype), bytes = (size_t)keys.cols * size;
    assert(keys.dtype == qkv.dtype && values.dtype == qkv.dtype);
    for (int64_t i = 0; i < qkv.rows; i++) {
        const int64_t sequence = strait_cpu_sequence(at, i), position = strait_cpu_position(at, i);
        if (sequence < 0) continue;
        assert(position < h.seq_len && (sequence + 1) * h.seq_len <= keys.rows);
        const size_t from = (size_t)(i * qkv.cols + (int64_t)h.n_query * h.head_dim) * size;
        const size_t to = (size_t)(sequence * h.seq_len + position) * bytes;
        memcpy((char *)keys.data + to, (const char *)qkv.data + from, bytes);
        memcpy((char *)values.data + to, (const char *)qkv.data + from + bytes, bytes);
    }
}

/* Stores each row of x in its sequence's ring of inputs. */
static inline void strait_cpu_keep_inputs(strait_tensor ring, strait_tensor x,
                                          strait_cached_rows at) {
    const size_t bytes = (size_t)x.cols * strait_dtype_bytes(x.dtype);
    assert(ring.dtype == x.dtype && ring.cols == x.cols);
    for (int64_t i = 0; i < x.rows; i++) {
        const int64_t sequence = strait_cpu_sequence(at, i);
        const int64_t slot = strait_cpu_position(at, i) % STRAIT_CONV_RING;
        if (sequence < 0) continue;
        memcpy((char *)ring.data + (size_t)(sequence * STRAIT_CONV_RING + slot) * bytes,
               (const char *)x.data + (size_t)i * bytes, bytes);
    }
}
