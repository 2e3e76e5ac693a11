/* octave.c - rows at 4 bits a value and 4 bits a scale: pack_octaves, restore_octaves. */
#include "backend/cuda/payload.h"
#include "backend/cuda/rows.h"

/* A word of four bytes a lane: half as many lanes as fours of values. */
static int lanes_of(int64_t cols) {
    return strait_cuda_row_lanes((cols + 2) / 2);
}

static strait_cuda_grid by_lanes(int64_t rows, int n_lanes) {
    const strait_cuda_grid grid = strait_cuda_by_lanes(rows, n_lanes);
    return (strait_cuda_grid){.x = grid.x > 0 ? grid.x : 1, .threads = grid.threads};
}

static strait_err pack_octaves(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                               strait_tensor x, strait_pack_params params) {
    params.cols = strait_pack_cols(x, params);
    assert(x.dtype == STRAIT_F32 && x.rows > 0);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((params.cols + 2) / 2));
    strait_cuda_largest largest = {0};
    STRAIT_TRY(strait_cuda_find_largest(s, x, params.cols, &largest));
    int n_lanes = lanes_of(params.cols);
    void *args[] = {&packed.data, &stats.data,       &x.data,         &x.rows,          &x.cols,
                    &params,      &largest.of_block, &largest.of_row, &largest.n_parts, &n_lanes};
    return strait_cuda_launch(s, "pack_octaves", by_lanes(x.rows, n_lanes), args);
}

static strait_err restore_octaves(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                                  strait_tensor packed, strait_pack_params params) {
    params.cols = strait_pack_cols(x, params);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((params.cols + 2) / 2));
    int n_lanes = lanes_of(params.cols);
    void *args[] = {&x.data,      &stats.data,           &packed.data, &x.rows,
                    &params.cols, &params.is_stochastic, &x.cols,      &n_lanes};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "restore_octaves"),
                              by_lanes(x.rows, n_lanes), args);
}

void strait_cuda_octave(struct strait_kernel_set *set) {
    set->log_scale.pack = pack_octaves;
    set->log_scale.restore = restore_octaves;
}
