/* norm.c - root-mean-square norm, with the residual sum before it. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

/* Enough threads that each keeps its part of a row in registers, as k_norm.cu expects. */
static unsigned threads_of(strait_tensor x) {
    const int64_t held = x.cols % strait_cuda_wide(x.dtype) == 0 ? 16 : 4;
    return strait_cuda_threads(strait_cuda_pieces(x.cols, held), 512);
}

enum {
    BACK_THREADS = 256, // per block, as in k_norm.cu
    BACK_BLOCKS = 264,  // most blocks with a gain: each leaves a row of partial sums for d_gain
    BACK_ROUNDS = 2     // least rounds per block with a gain, where there are enough rows
};

/* Threads per row: the smallest power-of-two number of warps whose registers hold it; at most a
 * block. */
static int team_of(strait_tensor x) {
    const int64_t wide = strait_cuda_wide(x.dtype), held = x.cols % wide == 0 ? 4 * wide : 4;
    int team = 32;
    while (team < BACK_THREADS && team * held < x.cols)
        team *= 2;
    return team;
}

static strait_err rmsnorm(struct strait_stream *s, strait_tensor y, strait_tensor sum,
                          strait_tensor rstd, strait_tensor x, strait_tensor delta,
                          strait_norm_params params) {
    assert(strait_cuda_same_shape(y, x) && rstd.rows == x.rows && y.dtype == x.dtype);
    assert((sum.data == NULL) == (delta.data == NULL));
    int cols = (int)x.cols;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, sum.data, rstd.data, x.data, delta.data,
                                                   params.gain.data, cols, params.epsilon);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "rmsnorm"),
                              (strait_cuda_grid){.x = x.rows, .threads = threads_of(x)}, args);
}

static strait_err rmsnorm_back(struct strait_stream *s, strait_tensor d_x, strait_tensor d_gain,
                               strait_tensor d_y, strait_tensor x, strait_tensor gain,
                               strait_tensor rstd) {
    assert(strait_cuda_same_shape(d_x, x) && strait_cuda_same_shape(d_y, x));
    assert(d_x.dtype == x.dtype && d_y.dtype == x.dtype);
    assert(gain.data == NULL || d_gain.data != NULL);
    int64_t rows = x.rows;
    int cols = (int)x.cols, team = team_of(x);
    int64_t blocks = strait_cuda_pieces(rows, BACK_THREADS / team);
    void *partial = NULL;
    if (gain.data != NULL) {
        blocks = strait_cuda_pieces(blocks, BACK_ROUNDS);
        if (blocks > BACK_BLOCKS) blocks = BACK_BLOCKS;
        STRAIT_TRY(strait_cuda_scratch(s, (size_t)(blocks * cols) * sizeof(float), &partial));
    }
    const strait_cuda_args args = STRAIT_CUDA_ARGS(d_x.data, partial, d_y.data, x.data, gain.data,
                                                   rstd.data, rows, cols, team);
    STRAIT_TRY(strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "rmsnorm_back"),
                                  (strait_cuda_grid){.x = blocks, .threads = BACK_THREADS}, args));
    return gain.data == NULL ? STRAIT_OK
                             : strait_cuda_add_columns(s, d_gain.data, partial, blocks, cols);
}

void strait_cuda_norm(struct strait_kernel_set *set) {
    set->base.rmsnorm = rmsnorm;
    set->base.rmsnorm_back = rmsnorm_back;
}
