/* sums.c - sum_squares, normalise, clip. Sums of squares take two kernels: partial sums of fixed
 * shares of each tensor, then their sum in order, both in double precision. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/k_sums.h"

enum {
    THREADS = 256
};

/* One launch: block first[i] is the first block of tensor i. */
static strait_err launch_squares(struct strait_stream *s, float *totals, strait_cuda_squares *all,
                                 strait_dtype dtype) {
    int64_t blocks = 0;
    for (int i = 0; i < all->count; i++) {
        all->first[i] = blocks;
        blocks += strait_cuda_pieces(all->n[i], STRAIT_CUDA_SQUARES_SHARE);
    }
    void *partials = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)blocks * sizeof(double), &partials));
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(dtype, "squares"),
                                  (strait_cuda_grid){.x = blocks, .threads = THREADS},
                                  STRAIT_CUDA_ARGS(partials, *all)));
    return strait_cuda_launch(s, "squares_total",
                              (strait_cuda_grid){.x = all->count, .threads = THREADS},
                              STRAIT_CUDA_ARGS(totals, partials, *all));
}

/* Many tensors per launch: a model has hundreds of parameters, most of them small. */
static strait_err sum_squares_each(struct strait_stream *s, strait_tensor totals,
                                   const strait_tensor *x, int n) {
    assert(totals.dtype == STRAIT_F32 && strait_cuda_count(totals) >= n);
    for (int first = 0; first < n; first += STRAIT_CUDA_SQUARES) {
        strait_cuda_squares all = {.count = n - first < STRAIT_CUDA_SQUARES ? n - first
                                                                            : STRAIT_CUDA_SQUARES};
        for (int i = 0; i < all.count; i++) {
            assert(x[first + i].dtype == x[0].dtype);
            all.x[i] = x[first + i].data;
            all.n[i] = strait_cuda_count(x[first + i]);
        }
        STRAIT_TRY(launch_squares(s, (float *)totals.data + first, &all, x[0].dtype));
    }
    return STRAIT_OK;
}

static strait_err sum_squares(struct strait_stream *s, strait_tensor total, strait_tensor x) {
    return sum_squares_each(s, total, &x, 1);
}

/* The total stays on the device, so that the host need not wait for it. */
static strait_err normalise(struct strait_stream *s, strait_tensor y, strait_tensor x,
                            strait_tensor total, float epsilon) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype && total.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(x);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, n, total.data, epsilon);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "normalise"), strait_cuda_each(s, n),
                              args);
}

/* One block: there are few totals, and they are summed in order. */
static strait_err clip(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       double max_norm) {
    assert(strait_cuda_count(scale) >= 2 && totals.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(totals);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(scale.data, totals.data, n, max_norm);
    return strait_cuda_launch(s, "clip", (strait_cuda_grid){.x = 1, .threads = THREADS}, args);
}

void strait_cuda_sums(struct strait_kernel_set *set) {
    set->base.sum_squares = sum_squares;
    set->base.sum_squares_each = sum_squares_each;
    set->base.normalise = normalise;
    set->base.clip = clip;
}
