/* k_product.cu - restored codes and their product with a matrix, on tensor cores. */
#include "backend/cuda/hidden.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800 // the host never asks for them elsewhere
namespace {

/* The block's rows of y, `cols` wide, from where put_sums left them. */
__device__ __forceinline__ void write_rows(bf16 *y, const unsigned char *room, int64_t first,
                                           int64_t rows, int cols) {
    const int pieces = cols / PIECE, pitch = cols * 2 + 16;
    for (int i = (int)threadIdx.x; i < ROWS * pieces && first + i / pieces < rows; i += BLOCK)
        *(piece *)(y + (first * pieces + i) * PIECE) = *(const piece *)(room + i / pieces * pitch +
                                                                        i % pieces * 16);
}

/* The block's rows of x, to memory and as the left factor. */
__device__ __forceinline__ void restore_rows_of(unsigned char *own,
                                                const strait_cuda_product_args &g, int64_t first) {
    constexpr int PIECES = PANEL / PIECE;
    const int lane = (int)threadIdx.x % PIECES;
    for (int r = (int)threadIdx.x / PIECES; r < ROWS; r += BLOCK / PIECES) { // alike in a warp
        const int64_t row = first + r;
        const bool is_row = row < g.rows;
        float v[PIECE] = {};
        restore_piece(v, g.stats, g.packed, g.keep, g.is_stochastic,
                      {is_row ? row : -1, g.rows, lane, PIECES}, is_row);
        const piece made = narrow<bf16, PIECE>(v);
        *(piece *)(own + piece_at<PANEL>(r, lane)) = made;
        if (is_row && lane * PIECE < g.cols)
            *(piece *)((bf16 *)g.x + row * g.cols + lane * PIECE) = made;
    }
}

__device__ __forceinline__ void restore_and_multiply(const strait_cuda_product_args &g) {
    constexpr uint32_t OWN = tile_bytes<PANEL>(ROWS), TILE = tile_bytes<PANEL>(PANEL);
    const uint32_t base = shared_base(), tiles = base + OWN;
    const int panels = g.y_cols / PANEL, pitch = g.y_cols * 2 + 16;
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    unsigned char *room = shared_bytes(base), *leaving = room + OWN + (uint32_t)panels * TILE;
    for (int p = 0; p < panels; p++)
        fetch_rows<PANEL, PANEL, BLOCK>(tiles + (uint32_t)p * TILE,
                                        (const uint16_t *)g.m + p * PANEL, g.y_cols, g.cols);
    restore_rows_of(room, g, first);
    copy_wait();
    __syncthreads();
    for (int p = 0; p < panels; p++) {
        const int col = first_col_of_warp(PANEL);
        float acc[MT][2][4];
        clear<MT, 2>(acc);
        add_columns_of<MT, 2>(acc, base, tiles + (uint32_t)p * TILE, first_row_of_warp(), col);
        put_sums<MT, 2>(leaving, pitch, acc, first_row_of_warp(), p * PANEL + col);
    }
    __syncthreads();
    write_rows((bf16 *)g.y, leaving, first, g.rows, g.y_cols);
}

} // namespace

extern "C" __global__ void __launch_bounds__(BLOCK, 1) restore_product(strait_cuda_product_args g) {
    restore_and_multiply(g);
}
#endif
