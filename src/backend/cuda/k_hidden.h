/* k_hidden.h - the hidden layer over codes, as host and device share it. */
#pragma once

#include "backend/kernels.h"

#include <stdint.h>

enum {
    STRAIT_CUDA_HIDDEN_ROWS = 96,   // of a block: 12,288 rows are a block a multiprocessor
    STRAIT_CUDA_HIDDEN_AFTER = 16,  // backward, rows behind them, which took codes of theirs
    STRAIT_CUDA_HIDDEN_PANEL = 64,  // columns of normeds in a tile
    STRAIT_CUDA_HIDDEN_CHUNK = 128, // columns of a that are made at a time
    STRAIT_CUDA_ENCODE_PANELS = 4,  // of seen that travel at a time
    STRAIT_CUDA_PRODUCT_PANELS = 8, // of y in restore_product, at most
    STRAIT_CUDA_HIDDEN_TAPS = 64,   // at most, and their codes fit a tile of v
    STRAIT_CUDA_HIDDEN_THREADS = 256
};

/* a [rows x hidden] = normeds v'; normeds and v have 64 columns a panel. bf16 but for what is
 * float. With `packed`, z is made of it. */
typedef struct strait_cuda_hidden_args {
    void *both, *normeds, *a;
    float *rstd, *z, *stats;
    const void *packed, *v;
    int64_t rows;
    int cols, keep, taps, both_cols, hidden, seq_len, is_stochastic;
    float epsilon;
} strait_cuda_hidden_args;

/* d_a = d_h silu'(a), d_h being the last columns of d_both; d_z of it and the others. */
typedef struct strait_cuda_hidden_back_args {
    void *d_a;
    float *d_z;
    const void *d_both, *a, *v;
    const float *z, *rstd;
    int64_t rows;
    int cols, both_cols, hidden;
    strait_recall_how how;
} strait_cuda_hidden_back_args;

/* x [rows x cols] restored of `packed`, its first `keep` columns; y = x m, in whole panels. */
typedef struct strait_cuda_product_args {
    void *y, *x;
    float *stats;
    const void *packed, *m;
    int64_t rows;
    int cols, keep, y_cols, is_stochastic;
} strait_cuda_product_args;

/* u [rows x 64] = seen m', whose columns from `first` on become silu(b), then z. */
typedef struct strait_cuda_encode_args {
    void *seen;
    float *u;
    const void *b, *m;
    const float *z;
    int64_t rows;
    int cols, first, hidden;
} strait_cuda_encode_args;

/* Bytes of shared memory: the block's rows, two tiles of v, what is on its way out; and backward
 * two tiles of both. */
static inline unsigned strait_cuda_hidden_shared(int panels) {
    const int rows = STRAIT_CUDA_HIDDEN_ROWS, chunk = STRAIT_CUDA_HIDDEN_CHUNK;
    return (unsigned)(panels * (rows + 2 * chunk) * STRAIT_CUDA_HIDDEN_PANEL * 2 +
                      rows * (chunk * 2 + 16));
}

/* Bytes of a tile of v, where the codes wait before the second tile is there. */
static inline int64_t strait_cuda_hidden_tile(int panels) {
    return (int64_t)panels * STRAIT_CUDA_HIDDEN_CHUNK * STRAIT_CUDA_HIDDEN_PANEL * 2;
}

/* Twice so many panels of the block's rows and of m. */
static inline unsigned strait_cuda_encode_shared(void) {
    return (unsigned)(2 * STRAIT_CUDA_ENCODE_PANELS *
                      (STRAIT_CUDA_HIDDEN_ROWS + STRAIT_CUDA_HIDDEN_PANEL) *
                      STRAIT_CUDA_HIDDEN_PANEL * 2);
}

/* The block's rows, m, and what is on its way out. */
static inline unsigned strait_cuda_product_shared(int panels) {
    const int rows = STRAIT_CUDA_HIDDEN_ROWS, panel = STRAIT_CUDA_HIDDEN_PANEL;
    return (unsigned)((rows + panels * panel) * panel * 2 + rows * (panels * panel * 2 + 16));
}

static inline unsigned strait_cuda_hidden_back_shared(int panels) {
    const int panel = STRAIT_CUDA_HIDDEN_PANEL;
    return (unsigned)(2 * (STRAIT_CUDA_HIDDEN_ROWS + STRAIT_CUDA_HIDDEN_AFTER + panels * panel) *
                      panel * 2);
}
