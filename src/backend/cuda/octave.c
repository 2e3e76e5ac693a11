/* octave.c - rows at 4 bits a value and 4 bits a scale: pack_octaves, restore_octaves. */
#include "backend/cuda/payload.h"
#include "backend/cuda/rows.h"

enum {
    ROWS = 8 // of a block: a warp each
};

static strait_cuda_grid warp_a_row(int64_t rows) {
    const int64_t blocks = strait_cuda_pieces(rows, ROWS);
    return (strait_cuda_grid){.x = blocks > 0 ? blocks : 1, .threads = 32 * ROWS};
}

static strait_err pack_octaves(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                               strait_tensor x, strait_pack_how how) {
    how.cols = strait_pack_cols(x, how);
    assert(x.dtype == STRAIT_F32 && x.rows > 0);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((how.cols + 2) / 2));
    strait_cuda_largest largest = {0};
    STRAIT_TRY(strait_cuda_find_largest(s, x, how.cols, &largest));
    void *args[] = {&packed.data, &stats.data,       &x.data,         &x.rows,         &x.cols,
                    &how,         &largest.of_block, &largest.of_row, &largest.n_parts};
    return strait_cuda_launch(s, "pack_octaves", warp_a_row(x.rows), args);
}

static strait_err restore_octaves(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                                  strait_tensor packed, strait_pack_how how) {
    how.cols = strait_pack_cols(x, how);
    assert((int64_t)strait_tensor_bytes(packed) == 4 + x.rows * ((how.cols + 2) / 2));
    void *args[] = {&x.data,   &stats.data,        &packed.data, &x.rows,
                    &how.cols, &how.is_stochastic, &x.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "restore_octaves"), warp_a_row(x.rows),
                              args);
}

void strait_cuda_octave(struct strait_kernels *k) {
    k->pack_octaves = pack_octaves;
    k->restore_octaves = restore_octaves;
}
