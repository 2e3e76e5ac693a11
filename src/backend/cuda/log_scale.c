/* log_scale.c - log-scale payloads (backend/log_scale.h). */
#include "backend/cuda/grid.h"
#include "backend/cuda/payload.h"

/* Lanes per row: each lane packs four bytes, which are eight values. */
static int lanes_of(int64_t cols) {
    return strait_cuda_row_lanes((cols + 2) / 2);
}

/* At least one block, because the first one also writes the top scale. */
static strait_cuda_grid by_lanes(int64_t rows, int n_lanes) {
    const strait_cuda_grid grid = strait_cuda_by_lanes(rows, n_lanes);
    return (strait_cuda_grid){.x = grid.x > 0 ? grid.x : 1, .threads = grid.threads};
}

/* The largest values are found first, since the top scale belongs to the whole message. */
static strait_err log_scale_pack(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                                 strait_tensor x, strait_pack_params params) {
    params.cols = strait_pack_cols(x, params);
    assert(x.dtype == STRAIT_F32 && x.rows > 0);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((params.cols + 2) / 2));
    strait_cuda_largest largest = {0};
    STRAIT_TRY(strait_cuda_find_largest(s, x, params.cols, &largest));
    int n_lanes = lanes_of(params.cols);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(packed.data, stats.data, x.data, x.rows, x.cols,
                                                   params, largest.of_block, largest.of_row,
                                                   largest.n_parts, n_lanes);
    return strait_cuda_launch(s, "log_scale_pack", by_lanes(x.rows, n_lanes), args);
}

static strait_err log_scale_restore(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                                    strait_tensor packed, strait_pack_params params) {
    params.cols = strait_pack_cols(x, params);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((params.cols + 2) / 2));
    int n_lanes = lanes_of(params.cols);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(x.data, stats.data, packed.data, x.rows,
                                                   params.cols, params.is_stochastic, x.cols,
                                                   n_lanes);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "log_scale_restore"),
                              by_lanes(x.rows, n_lanes), args);
}

void strait_cuda_log_scale(struct strait_kernel_set *set) {
    set->log_scale.pack = log_scale_pack;
    set->log_scale.restore = log_scale_restore;
}
