/* codec.c - kernels of transparent codecs: top-k payloads, Hadamard transform, orthonormal columns.
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

enum {
    TOP_HELD = 16,        // columns that a thread of topk_pack keeps in registers
    SPAN = 4096,          // values per block of hadamard, unless one tile is larger
    BASIS_MAX = 1024,     // most columns of orthonormalise
    BASIS_ROWS = 64,      // least rows of a part whose products are summed separately
    BASIS_PARTS = 64,     // most parts
    BASIS_BYTES = 8 << 20 // scratch for the products of all parts, unless one takes more
};

static int index_bytes(int64_t cols) {
    return cols > 65536 ? 4 : 2;
}

static strait_err topk_pack(struct strait_stream *s, strait_tensor packed, strait_tensor x,
                            int64_t keep, strait_pack_params params) {
    assert(keep > 0 && keep <= x.cols && x.dtype == STRAIT_F32);
    int n_index = index_bytes(x.cols);
    assert(strait_tensor_bytes(packed) == (size_t)(x.rows * keep) * (size_t)(2 + n_index));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(packed.data, x.data, x.rows, x.cols, keep,
                                                   n_index, params);
    const unsigned threads = strait_cuda_threads(strait_cuda_pieces(x.cols, TOP_HELD), 1024);
    return strait_cuda_launch(s, "topk_pack", (strait_cuda_grid){.x = x.rows, .threads = threads},
                              args);
}

static strait_err topk_restore(struct strait_stream *s, strait_tensor x, strait_tensor stats,
                               strait_tensor packed, int64_t keep) {
    assert(x.dtype == STRAIT_F32);
    int n_index = index_bytes(x.cols);
    assert(strait_tensor_bytes(packed) == (size_t)(x.rows * keep) * (size_t)(2 + n_index));
    const strait_cuda_args args = STRAIT_CUDA_ARGS(x.data, stats.data, packed.data, x.rows, x.cols,
                                                   keep, n_index);
    return strait_cuda_launch(
        s, "topk_restore", (strait_cuda_grid){.x = strait_cuda_pieces(x.rows, 8), .threads = 256},
        args);
}

static strait_err hadamard(struct strait_stream *s, strait_tensor y, strait_tensor x,
                           int64_t tile) {
    assert(strait_cuda_same_shape(y, x) && tile > 0 && (tile & (tile - 1)) == 0);
    assert(x.cols % tile == 0 && x.dtype == STRAIT_F32);
    int64_t n = strait_cuda_count(x), span = tile > SPAN ? tile : SPAN;
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, n, tile, span);
    return strait_cuda_launch(
        s, "hadamard", (strait_cuda_grid){.x = strait_cuda_pieces(n, span), .threads = 256}, args);
}

/* One round of Cholesky orthonormalisation, q = q R^-1 with q'q = R'R. `scratch` holds the products
 * of n_parts parts, the factor and its inverse. */
static strait_err orthonormalise_once(struct strait_stream *s, strait_tensor q, double *scratch,
                                      int64_t n_parts) {
    int64_t r = q.cols, rows_of_part = strait_cuda_pieces(q.rows, n_parts);
    double *g = scratch + n_parts * r * r, *inverse = g + r * r;
    const strait_cuda_args products = STRAIT_CUDA_ARGS(scratch, q.data, q.rows, r, rows_of_part);
    const int64_t tiles = strait_cuda_pieces(r, 16);
    STRAIT_TRY(strait_cuda_launch(
        s, "gram",
        (strait_cuda_grid){.x = tiles, .y = tiles, .z = n_parts, .threads = 16, .threads_y = 16},
        products));
    const strait_cuda_args factors = STRAIT_CUDA_ARGS(g, inverse, scratch, r, n_parts);
    STRAIT_TRY(
        strait_cuda_launch(s, "factor", (strait_cuda_grid){.x = 1, .threads = 256}, factors));
    const strait_cuda_args rest = STRAIT_CUDA_ARGS(q.data, inverse, q.rows, r);
    return strait_cuda_launch(
        s, "apply_inverse", (strait_cuda_grid){.x = strait_cuda_pieces(q.rows, 8), .threads = 256},
        rest);
}

static strait_err orthonormalise(struct strait_stream *s, strait_tensor q) {
    assert(q.dtype == STRAIT_F32);
    if (q.cols > BASIS_MAX)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "orthonormalise on cuda: %lld columns, at most %d are supported",
                           (long long)q.cols, BASIS_MAX);
    if (q.rows == 0 || q.cols == 0) return STRAIT_OK;
    const int64_t square = q.cols * q.cols, parts_that_fit = BASIS_BYTES / 8 / square;
    int64_t n_parts = strait_cuda_pieces(q.rows, BASIS_ROWS);
    if (n_parts > BASIS_PARTS) n_parts = BASIS_PARTS;
    if (n_parts > parts_that_fit) n_parts = parts_that_fit > 0 ? parts_that_fit : 1;
    void *scratch = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, (size_t)((n_parts + 2) * square) * sizeof(double), &scratch));
    STRAIT_TRY(orthonormalise_once(s, q, scratch, n_parts));
    return orthonormalise_once(s, q, scratch, n_parts); // removes what rounding left
}

void strait_cuda_codec(struct strait_kernel_set *set) {
    set->topk.pack = topk_pack;
    set->topk.restore = topk_restore;
    set->hadamard.transform = hadamard;
    set->lowrank.orthonormalise = orthonormalise;
}
