/* payload.c - rows as payload bytes: pack_rows, restore_rows, measure_rows. */
#include "backend/cuda/payload.h"

#include "backend/cuda/grid.h"

enum {
    PARTS_MAX = 512 // most blocks that search the largest magnitude
};

/* A bounded number of blocks, so that the next kernel can reduce their maxima by itself. */
strait_err strait_cuda_find_largest(struct strait_stream *s, strait_tensor x, int64_t cols,
                                    strait_cuda_largest *out) {
    int n_lanes = strait_cuda_row_lanes(cols);
    const int64_t blocks = strait_cuda_by_lanes(x.rows, n_lanes).x;
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(PARTS_MAX + x.rows) * sizeof(float), &scratch));
    out->n_parts = (int)(blocks < PARTS_MAX ? blocks : PARTS_MAX);
    out->of_block = scratch;
    out->of_row = out->of_block + PARTS_MAX;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(out->of_block, out->of_row, x.data, x.rows, cols,
                                                   x.cols, n_lanes);
    return strait_cuda_launch(s, "largest_of_rows",
                              (strait_cuda_grid){.x = out->n_parts, .threads = STRAIT_CUDA_LANES},
                              args);
}

/* 16 bits and more have no scales, so the search for the largest value is skipped. */
static strait_err pack_rows(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_params params) {
    assert(x.dtype == STRAIT_F32);
    assert(stats.data == NULL || (stats.rows == x.rows && stats.cols == 3));
    strait_cuda_largest largest = {0};
    params.cols = strait_pack_cols(x, params);
    int n_lanes = strait_cuda_row_lanes(params.cols);
    if (params.bits < 16) STRAIT_TRY(strait_cuda_find_largest(s, x, params.cols, &largest));
    strait_cuda_grid grid = strait_cuda_by_lanes(x.rows, n_lanes);
    if (params.bits < 16 && grid.x == 0) grid.x = 1; // the base is written even without rows
    const strait_cuda_args args = STRAIT_CUDA_ARGS(packed.data, stats.data, x.data, x.rows, x.cols,
                                                   params, largest.of_block, largest.of_row,
                                                   largest.n_parts, n_lanes);
    return strait_cuda_launch(s, "pack_rows", grid, args);
}

static strait_err restore_rows(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_params params) {
    params.cols = strait_pack_cols(x, params);
    int n_lanes = strait_cuda_row_lanes(params.cols);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(x.data, stats.data, packed.data, x.rows,
                                                   params.cols, params.bits, x.cols, n_lanes);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "restore_rows"),
                              strait_cuda_by_lanes(x.rows, n_lanes), args);
}

/* One warp per row; see the kernel. */
static strait_err measure_rows(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error) {
    assert(strait_cuda_same_shape(x, error) && stats.rows == x.rows && stats.cols == 3);
    assert(x.dtype == error.dtype);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(stats.data, x.data, error.data, x.rows, x.cols);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "measure_rows"),
                              strait_cuda_by_lanes(x.rows, 32), args);
}

void strait_cuda_payload(struct strait_kernel_set *set) {
    set->base.pack_rows = pack_rows;
    set->base.restore_rows = restore_rows;
    set->base.measure_rows = measure_rows;
}
