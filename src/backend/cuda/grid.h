/* grid.h - how kernels are laid out over rows, and over values one by one. */
#pragma once

#include "backend/cuda/launch.h"

enum {
    STRAIT_CUDA_SHARES = 528 // most blocks that each leave a row of partial sums
};

/* Values in 16 bytes, the widest load of a thread. */
static inline int64_t strait_cuda_wide(strait_dtype dtype) {
    return dtype == STRAIT_BF16 ? 8 : 4;
}

/* Whole warps for n threads, at most `most` threads. */
static inline unsigned strait_cuda_threads(int64_t n, int64_t most) {
    const int64_t whole = strait_cuda_pieces(n < 1 ? 1 : n, 32) * 32;
    return (unsigned)(whole < most ? whole : most);
}

/* How many blocks share the rows where each block leaves partial sums. It follows from the shape
 * alone, so that sums keep their order on any device. */
static inline int64_t strait_cuda_shares(int64_t rows) {
    const int64_t n = strait_cuda_pieces(rows, 4);
    return n < STRAIT_CUDA_SHARES ? n : STRAIT_CUDA_SHARES;
}

/* Threads over the columns of each row, `width` columns each; kernels loop over further columns and
 * rows in strides of the grid. */
static inline strait_cuda_grid strait_cuda_over_rows(int64_t rows, int64_t cols, int64_t width) {
    const int64_t n = strait_cuda_pieces(cols, width), most = 65535;
    return (strait_cuda_grid){.x = strait_cuda_pieces(n, 256),
                              .y = rows < most ? rows : most,
                              .threads = strait_cuda_threads(n, 256)};
}

/* The same for kernels that use over_rows of vector.cuh: where rows are narrow, a block takes
 * several rows at a time. */
static inline strait_cuda_grid strait_cuda_by_rows(int64_t rows, int64_t cols, int64_t width) {
    strait_cuda_grid grid = strait_cuda_over_rows(rows, cols, width);
    const int64_t n = strait_cuda_pieces(cols, width), most = 65535;
    if (n > 128) return grid;
    grid.threads = n < 1 ? 1 : (unsigned)n;
    grid.threads_y = 256 / grid.threads;
    const int64_t blocks = strait_cuda_pieces(rows, grid.threads_y);
    grid.y = blocks < most ? blocks : most;
    return grid;
}

/* total [cols] += the sum over the rows of part [rows x cols], in an order fixed by the shape. */
static inline strait_err strait_cuda_add_columns(struct strait_stream *s, void *total, void *part,
                                                 int64_t rows, int64_t cols) {
    const strait_cuda_args args = STRAIT_CUDA_ARGS(total, part, rows, cols);
    return strait_cuda_launch(
        s, "add_columns",
        (strait_cuda_grid){.x = strait_cuda_pieces(cols, 32), .threads = 32, .threads_y = 32},
        args);
}

enum {
    STRAIT_CUDA_EACH_THREADS = 256,
    STRAIT_CUDA_EACH_VALUES = 4 // least values per thread at a time
};

/* Elementwise kernels: enough threads for n values, four each, but no more blocks than keep the
 * device busy. */
static inline strait_cuda_grid strait_cuda_each(const struct strait_stream *s, int64_t n) {
    const int64_t want = strait_cuda_pieces(n, (int64_t)STRAIT_CUDA_EACH_THREADS *
                                                   STRAIT_CUDA_EACH_VALUES);
    const int64_t most = (int64_t)strait_cuda_processors(s) * 32;
    return (strait_cuda_grid){.x = want < most ? want : most, .threads = STRAIT_CUDA_EACH_THREADS};
}
