/* payload.c - rows as bytes for the wire: pack_rows, restore_rows, measure_rows. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/rows.h"

enum {
    ROWS = 8,       // of a block: a warp each
    PARTS_MAX = 512 // blocks that look for the largest value
};

static strait_cuda_grid warp_a_row(int64_t rows) {
    return (strait_cuda_grid){.x = strait_cuda_pieces(rows, ROWS), .threads = 32 * ROWS};
}

/* Finds the largest of each row and of each part of the rows; of_block and of_row are scratch. */
static strait_err find_largest(struct strait_stream *s, strait_tensor x, int64_t cols, int n_parts,
                               float **of_block, float **of_row) {
    void *room = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)(PARTS_MAX + x.rows) * sizeof(float), &room));
    *of_block = room;
    *of_row = *of_block + PARTS_MAX;
    void *args[] = {of_block, of_row, &x.data, &x.rows, &cols, &x.cols};
    return strait_cuda_launch(s, "largest_of_rows",
                              (strait_cuda_grid){.x = n_parts, .threads = 32 * ROWS}, args);
}

static strait_err pack_rows(struct strait_stream *s, strait_tensor packed, strait_tensor stats,
                            strait_tensor x, strait_pack_how how) {
    assert(x.dtype == STRAIT_F32);
    assert(stats.data == NULL || (stats.rows == x.rows && stats.cols == 3));
    float *of_block = NULL, *of_row = NULL;
    how.cols = strait_pack_cols(x, how);
    const int64_t blocks = strait_cuda_pieces(x.rows, ROWS);
    int n_parts = (int)(blocks < PARTS_MAX ? blocks : PARTS_MAX);
    if (how.bits < 16) STRAIT_TRY(find_largest(s, x, how.cols, n_parts, &of_block, &of_row));
    strait_cuda_grid grid = warp_a_row(x.rows);
    if (how.bits < 16 && grid.x == 0) grid.x = 1; // the base is there even without rows
    void *args[] = {&packed.data, &stats.data, &x.data, &x.rows, &x.cols,
                    &how,         &of_block,   &of_row, &n_parts};
    return strait_cuda_launch(s, "pack_rows", grid, args);
}

static strait_err restore_rows(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, strait_pack_how how) {
    assert(x.dtype == STRAIT_F32);
    how.cols = strait_pack_cols(x, how);
    void *args[] = {&x.data, &stats.data, &packed.data, &x.rows, &how.cols, &how.bits, &x.cols};
    return strait_cuda_launch(s, "restore_rows", warp_a_row(x.rows), args);
}

static strait_err measure_rows(struct strait_stream *s, strait_tensor stats, strait_tensor x,
                               strait_tensor error) {
    assert(strait_cuda_same_shape(x, error) && stats.rows == x.rows && stats.cols == 3);
    assert(x.dtype == error.dtype);
    void *args[] = {&stats.data, &x.data, &error.data, &x.rows, &x.cols};
    return strait_cuda_launch(s, STRAIT_CUDA_OF(x.dtype, "measure_rows"), warp_a_row(x.rows), args);
}

void strait_cuda_payload(struct strait_kernels *k) {
    k->pack_rows = pack_rows;
    k->restore_rows = restore_rows;
    k->measure_rows = measure_rows;
}
