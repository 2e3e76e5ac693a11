/* sums.c - sum_squares, normalise, clip. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/elementwise.h"

enum {
    THREADS = 256,
    BLOCKS = 1024,      // at most; the same on every device, so that the order of a sum is
    BLOCK_VALUES = 8192 // at least, where there are as many
};

static strait_err sum_squares(struct strait_stream *s, strait_tensor total, strait_tensor x) {
    assert(total.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(x);
    int64_t blocks = strait_cuda_pieces(n, BLOCK_VALUES);
    if (blocks < 1) blocks = 1;
    if (blocks > BLOCKS) blocks = BLOCKS;
    void *partials = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, BLOCKS * sizeof(double), &partials));
    void *args[] = {&partials, &x.data, &n};
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "squares"),
                                  (strait_cuda_grid){.x = blocks, .threads = THREADS}, args));
    void *end_args[] = {&total.data, &partials, &blocks};
    return strait_cuda_launch(s, "squares_total", (strait_cuda_grid){.x = 1, .threads = THREADS},
                              end_args);
}

static strait_err normalise(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype && total.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(x);
    void *args[] = {&y.data, &x.data, &n, &total.data, &epsilon};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "normalise"), strait_cuda_each(s, n),
                              args);
}

static strait_err clip(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       float max_norm) {
    assert(strait_cuda_count(scale) >= 2 && totals.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(totals);
    void *args[] = {&scale.data, &totals.data, &n, &max_norm};
    return strait_cuda_launch(s, "clip", (strait_cuda_grid){.x = 1, .threads = THREADS}, args);
}

void strait_cuda_sums(struct strait_kernels *k) {
    k->sum_squares = sum_squares;
    k->normalise = normalise;
    k->clip = clip;
}
