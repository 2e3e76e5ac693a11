/* attention.h - arguments of the attention kernels, shared by host and device. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_ATTENTION_HEAD_MAX = 256,  // widest head
    STRAIT_ATTENTION_PLAIN_TILE = 16, // rows per tile of the plain kernels, on both sides
    STRAIT_ATTENTION_CACHED_WARPS = 16,
    STRAIT_ATTENTION_STORE_THREADS = 128,
    STRAIT_ATTENTION_DELTA_LANES = 8, // lanes that sum one delta
    STRAIT_ATTENTION_COLUMNS = 1024,  // bytes of the columns of a tile of queries, padded
    STRAIT_ATTENTION_ONCE_KEYS = 128, // that a block owns
    STRAIT_ATTENTION_ONCE_THREADS = 384,
    STRAIT_ATTENTION_ONCE_SHARED = 200 << 10, // bytes
    STRAIT_ATTENTION_ONCE_COLUMN_THREADS = 256
};

/* One call. Rows are tokens; qkv and d_qkv have (n_query + 2 n_key) head_dim columns, y and d_y
 * n_query head_dim, lse and delta n_query. All but lse and delta are of one type. */
struct strait_attention_args {
    const void *qkv, *d_y;
    void *y, *d_qkv;
    float *lse;   // optional in the forward
    float *delta; // sum of d_y * y over one head of one token; backward only
    /* For kernels that compute scores once: lse times log2 e and the length of d_y, laid out as
     * delta; bits of the largest |k| and of the largest |v|^2 [sequences x n_key x 2]; sums of d_q.
     */
    float *power, *length;
    uint32_t *most;
    int *sums;
    /* [seq_len x head_dim / 2]: d_qkv is rotated back by these angles. NULL: it is not, as in every
     * kernel but those of warp groups. */
    const float *cos, *sin;
    int64_t n_rows;
    int32_t n_query, n_key, head_dim, seq_len;
    float scale;
    int32_t section; // heads of sequences that blocks work on at a time; backward only
};

/* One token per row, of sequences[row] (negative: none) at positions[row]: y [N x n_query P], keys
 * and values [S seq_len x n_key P]. */
struct strait_attention_cached_args {
    const void *qkv;
    void *y, *keys, *values;
    const int32_t *sequences, *positions;
    int32_t n_query, n_key, head_dim, seq_len;
    float scale;
};

static_assert(sizeof(struct strait_attention_args) == 128, "host and device layouts agree");
static_assert(sizeof(struct strait_attention_cached_args) == 72, "host and device layouts agree");
