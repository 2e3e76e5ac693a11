/* loss.c - cross-entropy of logits; the gradient replaces the logits. One block per row. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

/* Rows are as long as the vocabulary, so each gets a block of its own. */
static strait_err cross_entropy(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_params params) {
    assert(loss.rows == logits.rows && targets.rows == logits.rows);
    assert(loss.dtype == STRAIT_F32 && targets.dtype == STRAIT_I32);
    int cols = (int)logits.cols;
    const int64_t wide = strait_cuda_wide(logits.dtype);
    const int64_t n = logits.cols % wide == 0 ? logits.cols / wide : logits.cols;
    float per_cap = params.softcap != 0.0f ? 1.0f / params.softcap : 0.0f;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(loss.data, logits.data, targets.data, cols,
                                                   per_cap, params.scale);
    return strait_cuda_launch(
        s, STRAIT_CUDA_OF(logits.dtype, "cross_entropy"),
        (strait_cuda_grid){.x = logits.rows, .threads = strait_cuda_threads(n, 512)}, args);
}

void strait_cuda_loss(struct strait_kernel_set *set) {
    set->base.cross_entropy = cross_entropy;
}
