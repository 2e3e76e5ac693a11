/* k_hidden.cu - the hidden layer over codes on tensor cores: codes with those before them, their
 * product with v and what silu makes of it in one pass; and the way back in another. */
#include "backend/cuda/hidden.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800 // the host never asks for them elsewhere
namespace {

/* Eight values of a row of z, restored if they come packed; zeros from keep on. */
__device__ __forceinline__ void take_code(float v[PIECE], const strait_cuda_hidden_args &g,
                                          const row_place &at, bool is_own) {
    const int c = at.lane * PIECE;
    float *z = g.z + at.row * g.cols + c;
    if (g.packed != nullptr) {
        restore_piece(v, g.stats, g.packed, g.keep, g.is_stochastic, at, is_own);
        if (is_own) put_floats<PIECE>(z, v);
        return;
    }
    if (at.row >= 0 && at.row < at.rows) take_floats<PIECE>(v, z);
    #pragma unroll
    for (int k = 0; k < PIECE; k++)
        v[k] = c + k < g.keep ? v[k] : 0.0f;
}

/* The codes of the block's rows and of those before them, and the scales of their norms. */
__device__ __forceinline__ void take_codes_of(float *codes, float *scales,
                                              const strait_cuda_hidden_args &g, int64_t first) {
    const int n_lanes = g.cols / PIECE, lane = (int)threadIdx.x % n_lanes, before = g.taps - 1;
    for (int base = 0; base < ROWS + before; base += BLOCK / n_lanes) { // alike in all threads
        const int i = base + (int)threadIdx.x / n_lanes;
        const int64_t row = first - before + i;
        const bool is_row = i < ROWS + before && row >= 0 && row < g.rows;
        float v[PIECE] = {}, squares = 0;
        take_code(v, g, {is_row ? row : -1, g.rows, lane, n_lanes}, is_row && i >= before);
    #pragma unroll
        for (int k = 0; k < PIECE; k++)
            squares += v[k] * v[k];
        const float scale = 1.0f / sqrtf(warp_sum(squares, n_lanes) / (float)g.keep + g.epsilon);
        if (!is_row) continue;
        put_floats<PIECE>(codes + i * g.cols + lane * PIECE, v);
        if (lane != 0) continue;
        scales[i] = scale;
        if (i >= before) g.rstd[row] = scale;
    }
}

/* Codes and normed codes of the block's rows with those before them, and the latter as the left
 * factor. */
template <int PANELS>
__device__ __forceinline__ void gather(unsigned char *own, const float *codes, const float *scales,
                                       const strait_cuda_hidden_args &g, int64_t first) {
    constexpr int PIECES = PANELS * PANEL / PIECE; // of a row
    const uint32_t place = (uint32_t)(first % g.seq_len);
    #pragma unroll 4
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += BLOCK) {
        const int r = i / PIECES, at = i % PIECES, tap = at * PIECE / g.cols;
        const int from = r - tap + g.taps - 1;
        const int64_t row = first + r;
        const bool is_row = row < g.rows;
        const bool is_there = is_row && tap <= (int)((place + (uint32_t)r) % (uint32_t)g.seq_len);
        const float scale = is_there ? scales[from] : 0.0f;
        float v[PIECE] = {};
        if (is_there) take_floats<PIECE>(v, codes + from * g.cols + at * PIECE % g.cols);
        if (is_row) put<bf16, PIECE>((bf16 *)g.both + row * g.both_cols + at * PIECE, v);
    #pragma unroll
        for (int k = 0; k < PIECE; k++)
            v[k] *= scale;
        const piece normed = narrow<bf16, PIECE>(v);
        if (is_row) *(piece *)((bf16 *)g.normeds + (row * PIECES + at) * PIECE) = normed;
        *(piece *)(own + at / 8 * tile_bytes<PANEL>(ROWS) + piece_at<PANEL>(r, at % 8)) = normed;
    }
}

/* CHUNK columns of a and of silu(a), from `col` on. */
__device__ __forceinline__ void write_hidden(const strait_cuda_hidden_args &g,
                                             const unsigned char *room, int pitch, int64_t first,
                                             int col) {
    constexpr int PIECES = CHUNK / PIECE;
    #pragma unroll 2
    for (int i = (int)threadIdx.x; i < ROWS * PIECES; i += BLOCK) {
        const int64_t row = first + i / PIECES;
        const int c = i % PIECES * PIECE;
        if (row >= g.rows) break;
        const piece a = *(const piece *)(room + i / PIECES * pitch + c * 2);
        float v[PIECE];
        widen(v, a);
    #pragma unroll
        for (int k = 0; k < PIECE; k++)
            v[k] *= sigmoid(v[k]);
        *(piece *)((bf16 *)g.a + row * g.hidden + col + c) = a;
        put<bf16, PIECE>((bf16 *)g.both + (row + 1) * g.both_cols - g.hidden + col + c, v);
    }
}

template <int PANELS> __device__ __forceinline__ void hidden(const strait_cuda_hidden_args &g) {
    constexpr uint32_t OWN = PANELS * tile_bytes<PANEL>(ROWS),
                       TILE = PANELS * tile_bytes<PANEL>(CHUNK);
    constexpr int PITCH = CHUNK * 2 + 16, NT = CHUNK / 4 / 8;
    __shared__ float scales[ROWS + STRAIT_CUDA_HIDDEN_TAPS];
    const uint32_t base = shared_base();
    unsigned char *room = shared_bytes(base), *leaving = room + OWN + 2 * TILE;
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    fetch_tile<PANELS, CHUNK>(base + OWN, g.v, 0);
    float *codes = (float *)(room + OWN + TILE); // until the second tile comes
    take_codes_of(codes, scales, g, first);
    __syncthreads();
    gather<PANELS>(room, codes, scales, g, first);
    for (int col = 0, stage = 0; col < g.hidden; col += CHUNK, stage ^= 1) {
        const uint32_t tile = base + OWN + (uint32_t)stage * TILE;
        copy_wait();
        __syncthreads();
        if (col + CHUNK < g.hidden)
            fetch_tile<PANELS, CHUNK>(base + OWN + (uint32_t)(stage ^ 1) * TILE, g.v, col + CHUNK);
        float acc[MT][NT][4];
        clear<MT, NT>(acc);
    #pragma unroll
        for (uint32_t p = 0; p < PANELS; p++)
            add_rows_of<MT, NT>(acc, base + p * tile_bytes<PANEL>(ROWS),
                                tile + p * tile_bytes<PANEL>(CHUNK), first_row_of_warp(),
                                first_col_of_warp(CHUNK));
        put_sums<MT, NT>(leaving, PITCH, acc, first_row_of_warp(), first_col_of_warp(CHUNK));
        __syncthreads();
        write_hidden(g, leaving, PITCH, first, col);
    }
}

/* The pieces of PANEL columns of the block's rows, and of those behind, that a thread works on. */
struct slope_pieces {
    static constexpr int N = (ALL_ROWS * PANEL / PIECE + BLOCK - 1) / BLOCK;
    piece d_h[N], a[N];

    __device__ __forceinline__ static int row_of(int i) {
        return (i * BLOCK + (int)threadIdx.x) / (PANEL / PIECE);
    }
    __device__ __forceinline__ static int piece_of() {
        return (int)threadIdx.x % (PANEL / PIECE);
    }
    __device__ __forceinline__ void ask(const strait_cuda_hidden_back_args &g, int64_t first,
                                        int col) {
        const int c = col + piece_of() * PIECE;
    #pragma unroll
        for (int i = 0; i < N; i++) {
            const int64_t row = first + row_of(i);
            d_h[i] = a[i] = {};
            if (row >= g.rows) continue;
            d_h[i] = load<bf16, PIECE>((const bf16 *)g.d_both + (row + 1) * g.both_cols - g.hidden +
                                       c);
            a[i] = load<bf16, PIECE>((const bf16 *)g.a + row * g.hidden + c);
        }
    }
    /* d_a, to memory and as the left factor. */
    __device__ __forceinline__ void put_slopes(unsigned char *own,
                                               const strait_cuda_hidden_back_args &g, int64_t first,
                                               int col) const {
    #pragma unroll
        for (int i = 0; i < N; i++) {
            const int64_t row = first + row_of(i);
            float d[PIECE], x[PIECE];
            widen(d, d_h[i]);
            widen(x, a[i]);
    #pragma unroll
            for (int k = 0; k < PIECE; k++)
                d[k] *= silu_slope(x[k]);
            const piece made = narrow<bf16, PIECE>(d);
            if (row_of(i) < ALL_ROWS)
                *(piece *)(own + piece_at<PANEL>(row_of(i), piece_of())) = made;
            if (row < g.rows && row_of(i) < ROWS)
                *(piece *)((bf16 *)g.d_a + row * g.hidden + col + piece_of() * PIECE) = made;
        }
    }
};

/* All warps take all rows, and each some columns. */
template <int PANELS>
__device__ __forceinline__ void hidden_back(const strait_cuda_hidden_back_args &g) {
    constexpr uint32_t OWN = tile_bytes<PANEL>(ALL_ROWS), TILE = PANELS * tile_bytes<PANEL>(PANEL);
    constexpr int COLS = PANELS * PANEL, ALL = ALL_ROWS / 16, NT = COLS / 64, PITCH = COLS * 2 + 16;
    static_assert(ALL_ROWS * PITCH <= 2 * (OWN + TILE), "sums fit where factors were");
    const uint32_t base = shared_base(), tiles = base + 2 * OWN;
    unsigned char *room = shared_bytes(base);
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    const int own_col = (int)threadIdx.x / 32 * (COLS / 8);
    slope_pieces held;
    float acc[ALL][NT][4];
    clear<ALL, NT>(acc);
    fetch_tile<PANELS, PANEL>(tiles, g.v, 0);
    held.ask(g, first, 0);
    for (int col = 0, stage = 0; col < g.hidden; col += PANEL, stage ^= 1) {
        held.put_slopes(room + stage * OWN, g, first, col);
        copy_wait();
        __syncthreads();
        if (col + PANEL < g.hidden) {
            fetch_tile<PANELS, PANEL>(tiles + (uint32_t)(stage ^ 1) * TILE, g.v, col + PANEL);
            held.ask(g, first, col + PANEL);
        }
        add_columns_of<ALL, NT>(acc, base + (uint32_t)stage * OWN, tiles + (uint32_t)stage * TILE,
                                0, own_col);
    }
    __syncthreads();
    put_sums<ALL, NT>(room, PITCH, acc, 0, own_col);
    __syncthreads();
    const recall_gradient<bf16> codes = {g.d_z,
                                         (const bf16 *)g.d_both,
                                         (const bf16 *)room,
                                         g.z,
                                         g.rstd,
                                         g.rows,
                                         g.cols,
                                         g.both_cols,
                                         first,
                                         PITCH / 2,
                                         g.how};
    const int n_lanes = g.cols / PIECE;
    for (int r = (int)threadIdx.x / n_lanes; r < ROWS; r += BLOCK / n_lanes) // alike in a warp
        recall_piece_back<bf16>(codes, first + r, n_lanes);
}

} // namespace

    #define HIDDEN_KERNELS(PANELS)                                 \
        extern "C" __global__ void __launch_bounds__(BLOCK, 1)     \
            hidden_##PANELS(strait_cuda_hidden_args g) {           \
            hidden<PANELS>(g);                                     \
        }                                                          \
        extern "C" __global__ void __launch_bounds__(BLOCK, 1)     \
            hidden_back_##PANELS(strait_cuda_hidden_back_args g) { \
            hidden_back<PANELS>(g);                                \
        }

HIDDEN_KERNELS(2)
HIDDEN_KERNELS(4)

#endif
