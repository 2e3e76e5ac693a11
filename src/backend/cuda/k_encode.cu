/* k_encode.cu - a code of what a stage made: a product over wide rows whose last columns are made
 * on the way, on tensor cores. Some panels of the rows and of m travel while others are multiplied.
 */
#include "backend/cuda/hidden.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800 // the host never asks for them elsewhere
namespace {

constexpr int GROUP = STRAIT_CUDA_ENCODE_PANELS;
constexpr int NT = PANEL / 4 / 8;
constexpr uint32_t OWN = tile_bytes<PANEL>(ROWS), TILE = tile_bytes<PANEL>(PANEL);

constexpr int PIECES = PANEL / PIECE;
constexpr int HELD = ROWS * PIECES / BLOCK; // pieces of a panel that a thread makes

/* Which row a thread's i-th piece is of; it is piece `piece_of_thread` there. */
__device__ __forceinline__ int row_of_piece(int i) {
    return (i * BLOCK + (int)threadIdx.x) / PIECES;
}

__device__ __forceinline__ int piece_of_thread() {
    return (int)threadIdx.x % PIECES;
}

/* A piece that was made here, to memory and as the left factor. */
__device__ __forceinline__ void put_made(unsigned char *own, const strait_cuda_encode_args &g,
                                         int64_t first, int r, int col, const float v[PIECE]) {
    const piece made = narrow<bf16, PIECE>(v);
    *(piece *)(own + piece_at<PANEL>(r, piece_of_thread())) = made;
    if (first + r < g.rows)
        *(piece *)((bf16 *)g.seen + (first + r) * g.cols + col + piece_of_thread() * PIECE) = made;
}

/* Some panels' pieces of b, asked for before the first of them is used. */
struct hidden_pieces {
    piece b[GROUP][HELD];

    __device__ __forceinline__ static bool is_hidden(const strait_cuda_encode_args &g, int panel) {
        return panel * PANEL >= g.first && panel * PANEL < g.first + g.hidden;
    }
    __device__ __forceinline__ void ask(const strait_cuda_encode_args &g, int64_t first,
                                        int panel) {
    #pragma unroll
        for (int p = 0; p < GROUP; p++)
    #pragma unroll
            for (int i = 0; i < HELD; i++) {
                const int64_t row = first + row_of_piece(i);
                const int c = (panel + p) * PANEL - g.first + piece_of_thread() * PIECE;
                b[p][i] = {};
                if (is_hidden(g, panel + p) && row < g.rows)
                    b[p][i] = load<bf16, PIECE>((const bf16 *)g.b + row * g.hidden + c);
            }
    }
    __device__ __forceinline__ void put_silu(unsigned char *own, const strait_cuda_encode_args &g,
                                             int64_t first, int panel, int p) const {
    #pragma unroll
        for (int i = 0; i < HELD; i++) {
            float v[PIECE];
            widen(v, b[p][i]);
    #pragma unroll
            for (int k = 0; k < PIECE; k++)
                v[k] *= sigmoid(v[k]);
            put_made(own, g, first, row_of_piece(i), (panel + p) * PANEL, v);
        }
    }
};

__device__ __forceinline__ void put_code(unsigned char *own, const strait_cuda_encode_args &g,
                                         int64_t first) {
    #pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int64_t row = first + row_of_piece(i);
        float v[PIECE] = {};
        if (row < g.rows) take_floats<PIECE>(v, g.z + row * PANEL + piece_of_thread() * PIECE);
        put_made(own, g, first, row_of_piece(i), g.first + g.hidden, v);
    }
}

/* The panels from `panel` on, of the block's rows and of m; there after a wait and a barrier. */
__device__ __forceinline__ void bring_panels(uint32_t own, uint32_t tile,
                                             const strait_cuda_encode_args &g, int64_t first,
                                             int panel) {
    const int left = g.rows - first < ROWS ? (int)(g.rows - first) : ROWS;
    hidden_pieces held;
    held.ask(g, first, panel);
    #pragma unroll
    for (int p = 0; p < GROUP; p++, own += OWN, tile += TILE) {
        const int col = (panel + p) * PANEL;
        if (col >= g.cols) break;
        fetch_rows<PANEL, PANEL, BLOCK>(tile, (const uint16_t *)g.m + col, g.cols, PANEL);
        if (col < g.first)
            fetch_rows<PANEL, ROWS, BLOCK>(own, (const uint16_t *)g.seen + first * g.cols + col,
                                           g.cols, left);
        else if (hidden_pieces::is_hidden(g, panel + p))
            held.put_silu(shared_bytes(own), g, first, panel, p);
        else
            put_code(shared_bytes(own), g, first);
    }
}

__device__ __forceinline__ void write_sums(const strait_cuda_encode_args &g,
                                           const float acc[MT][NT][4], int64_t first) {
    const int64_t row = first + first_row_of_warp() + lane_of() / 4;
    const int col = first_col_of_warp(PANEL) + lane_of() % 4 * 2;
    #pragma unroll
    for (int m = 0; m < MT; m++)
    #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t r = row + 16 * m + 8 * half;
            if (r >= g.rows) continue;
    #pragma unroll
            for (int n = 0; n < NT; n++)
                *(float2 *)(g.u + r * PANEL + col + 8 * n) = make_float2(acc[m][n][2 * half],
                                                                         acc[m][n][2 * half + 1]);
        }
}

__device__ __forceinline__ void encode_rows(const strait_cuda_encode_args &g) {
    const uint32_t owns = shared_base(), tiles = owns + 2 * GROUP * OWN;
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    const int panels = g.cols / PANEL;
    float acc[MT][NT][4];
    clear<MT, NT>(acc);
    bring_panels(owns, tiles, g, first, 0);
    for (int done = 0; done < panels; done += GROUP) {
        const uint32_t stage = (uint32_t)(done / GROUP % 2) * GROUP, other = GROUP - stage;
        copy_wait();
        __syncthreads();
        bring_panels(owns + other * OWN, tiles + other * TILE, g, first, done + GROUP);
        for (int p = 0; p < GROUP && done + p < panels; p++)
            add_rows_of<MT, NT>(acc, owns + (stage + (uint32_t)p) * OWN,
                                tiles + (stage + (uint32_t)p) * TILE, first_row_of_warp(),
                                first_col_of_warp(PANEL));
    }
    write_sums(g, acc, first);
}

} // namespace

extern "C" __global__ void __launch_bounds__(BLOCK, 1) encode(strait_cuda_encode_args g) {
    encode_rows(g);
}
#endif
