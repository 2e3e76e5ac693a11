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
    STRAIT_CPU_LEFT = 2 << 20,    // floats of packed left panels of a matrix product
    STRAIT_CPU_RIGHT = 1 << 20,   // floats of packed right panels
    STRAIT_CPU_SCRATCH = 5 << 16, // floats per thread, for one item of attention
    STRAIT_CPU_HEAD_MAX = 256     // widest attention head
};

/* The state of a cpu device. Kernels run one at a time: they share the pool and the panels. */
struct strait_cpu {
    struct strait_pool *pool;
    float *left, *right; // packed panels; left also holds partial sums of blocks of rows
    float *scratch;      // STRAIT_CPU_SCRATCH floats per thread
    struct strait_kernel_set kernels;
    char description[64];
};

/* An instruction set and the kernels compiled for it. */
struct strait_isa {
    const char *name;
    int (*is_supported)(void); // by the processor we run on
    void (*fill)(struct strait_kernel_set *set);
};

/* Instruction sets this build has code for, the fastest last, ended by an entry without a name. */
extern const struct strait_isa strait_isas[];

/* Reference loops: one thread, sums in double precision. They define what every kernel computes. */
void strait_ref_elementwise(struct strait_kernel_set *set);
void strait_ref_matmul(struct strait_kernel_set *set);
void strait_ref_embed(struct strait_kernel_set *set);
void strait_ref_norm(struct strait_kernel_set *set);
void strait_ref_rotate(struct strait_kernel_set *set);
void strait_ref_attention(struct strait_kernel_set *set);
void strait_ref_mlp(struct strait_kernel_set *set);
void strait_ref_loss(struct strait_kernel_set *set);
void strait_ref_optim(struct strait_kernel_set *set);
void strait_ref_payload(struct strait_kernel_set *set);
void strait_ref_codec(struct strait_kernel_set *set);
void strait_ref_conv(struct strait_kernel_set *set);
void strait_ref_columns(struct strait_kernel_set *set);
void strait_ref_log_scale(struct strait_kernel_set *set);
void strait_ref_autoencoder(struct strait_kernel_set *set);

/* The values of an f32 tensor; NULL when it is absent. */
static inline float *strait_cpu_f32(strait_tensor t) {
    assert(t.data == NULL || t.dtype == STRAIT_F32);
    return t.data;
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

/* Stores the key and value of each row of qkv at row `past` of its sequence's cache. */
static inline void strait_cpu_cache(strait_tensor keys, strait_tensor values, strait_tensor qkv,
                                    int64_t past, strait_heads h) {
    const size_t bytes = (size_t)keys.cols * sizeof(float);
    for (int64_t b = 0; b < qkv.rows; b++) {
        const float *key = strait_cpu_f32(qkv) + b * qkv.cols + (int64_t)h.n_query * h.head_dim;
        const int64_t to = (b * h.seq_len + past) * keys.cols;
        memcpy(strait_cpu_f32(keys) + to, key, bytes);
        memcpy(strait_cpu_f32(values) + to, key + keys.cols, bytes);
    }
}
