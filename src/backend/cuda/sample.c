/* sample.c - the next token of each row of logits. */
#include "backend/cuda/cuda.h"

enum {
    THREADS = 1024 // of k_sample.cu
};

static strait_err sample(struct strait_stream *s, strait_tensor tokens, strait_tensor seen,
                         strait_tensor logits, strait_tensor rows) {
    assert(logits.dtype == STRAIT_F32 && tokens.dtype == STRAIT_I32);
    assert(tokens.rows == logits.rows && rows.rows == logits.rows);
    assert(rows.cols == (int64_t)sizeof(strait_sample_row));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(tokens.data, seen.data, logits.data, rows.data,
                                                   logits.cols);
    return strait_cuda_launch(s, "sample", (strait_cuda_grid){.x = logits.rows, .threads = THREADS},
                              args);
}

void strait_cuda_sample(struct strait_kernel_set *set) {
    set->base.sample = sample;
}
