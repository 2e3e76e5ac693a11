/* k_attention_back.cu - the gradient of attention for bf16 heads of 64 and 128 on tensor cores.
 *
 * Two passes, in neither of which blocks share a sum, so that the bits are the same every time: one
 * owns queries and loops over keys (d_q), one owns keys and loops over the queries of every head of
 * its group, in order (d_k, d_v). Both recompute probabilities from lse; scores are never stored.
 * Equations in ref_attention.c. */
#include "backend/cuda/attention_back.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800 // the host never launches them on older devices
namespace {

constexpr int STEP = 32; // rows processed at a time: their scores stay in registers
constexpr int NT = STEP / 8;

/* d_q. Blocks: x = head + n_query * sequence, y = tile of queries; the last tiles, which see the
 * most keys, run first. */
template <int P, int MT, bool IS_HELD>
__device__ __forceinline__ void query_back(const struct strait_attention_args &a) {
    constexpr int ROWS = 16 * MT * WARPS;
    constexpr uint32_t TILE = tile_bytes<P>(MET);
    const int head = (int)(blockIdx.x % (unsigned)a.n_query);
    const struct head_rows p = head_rows_of<P>(a, head, head / (a.n_query / a.n_key),
                                               (int)(blockIdx.x / (unsigned)a.n_query));
    const int first_query = ((int)gridDim.y - 1 - (int)blockIdx.y) * ROWS;
    const int warp_row = (int)threadIdx.x / 32 * 16 * MT;
    const int row = first_query + warp_row + lane_of() / 4;
    const uint32_t base = shared_base(), stages = base + 2 * tile_bytes<P>(ROWS);

    const int n_own = a.seq_len - first_query;
    fetch_rows<P, ROWS>(base, p.q + first_query * p.pitch, p.pitch, n_own);
    fetch_rows<P, ROWS>(base + tile_bytes<P>(ROWS), p.d_y + first_query * p.y_pitch, p.y_pitch,
                        n_own);
    fetch_rows<P, MET>(stages, p.k, p.pitch, a.seq_len);
    fetch_rows<P, MET>(stages + TILE, p.v, p.pitch, a.seq_len);

    query_columns<MT> columns;
    columns.read(a, p, head, row);
    float d_q[MT][P / 8][4];
    clear<MT, P / 8>(d_q);
    own_rows<P, MT, IS_HELD> q, d_y;
    q.init(base, warp_row);
    d_y.init(base + tile_bytes<P>(ROWS), warp_row);
    const int end = min(first_query + ROWS, a.seq_len);
    for (int first = 0, stage = 0; first < end; first += MET, stage ^= 1) {
        copy_wait();
        __syncthreads();
        if (first == 0) {
            q.hold();
            d_y.hold();
        }
        if (first + MET < end) {
            const uint32_t next = stages + (uint32_t)(stage ^ 1) * 2 * TILE;
            const int64_t at = (first + MET) * p.pitch;
            fetch_rows<P, MET>(next, p.k + at, p.pitch, a.seq_len - first - MET);
            fetch_rows<P, MET>(next + TILE, p.v + at, p.pitch, a.seq_len - first - MET);
        }
        const uint32_t keys = stages + (uint32_t)stage * 2 * TILE;
    #pragma unroll 1
        for (int step = 0; step < MET; step += STEP) {
            if (first + step > first_query + warp_row + 16 * MT - 1) break;
            float score[MT][NT][4], d_share[MT][NT][4];
            product_with_rows<P, MT, NT, IS_HELD>(score, q, keys, step);
            product_with_rows<P, MT, NT, IS_HELD>(d_share, d_y, keys + TILE, step);
            if (first + step + STEP - 1 > first_query + warp_row)
                mask<MT, NT, false>(score, row, first + step + lane_of() % 4 * 2);
            differentiate<MT, NT>(score, d_share, columns, a.scale * LOG2_E);
            add_product<P, MT, NT>(d_q, d_share, keys, step);
        }
    }
    write_queries<P, MT>(a, p, head, row, d_q);
}

/* differentiate() where columns are queries: lse and delta are in shared memory, this lane's first
 * at `at`. */
template <int MT>
__device__ __forceinline__ void differentiate_columns(float score[MT][NT][4],
                                                      float d_share[MT][NT][4], uint32_t at,
                                                      float scale) {
    #pragma unroll
    for (int n = 0; n < NT; n++) {
        const float2 lse = shared_pair(at + (uint32_t)n * 32);
        const float2 delta = shared_pair(at + (uint32_t)n * 32 + MET * 4);
    #pragma unroll
        for (int m = 0; m < MT; m++)
    #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float power = (i % 2 ? lse.y : lse.x) * LOG2_E;
                score[m][n][i] = power_of_2(score[m][n][i] * scale - power);
                d_share[m][n][i] = score[m][n][i] *
                                   (d_share[m][n][i] - (i % 2 ? delta.y : delta.x));
            }
    }
}

/* Starts to copy a tile of queries, its d_y, lse and delta. */
template <int P>
__device__ __forceinline__ void fetch_queries(const struct strait_attention_args &a,
                                              const struct head_rows &p, const met_queries<P> &met,
                                              int first_head, const query_cursor &at) {
    const int first = met.first_query(at), column = at.in_group * P, n_valid = a.seq_len - first;
    const uint32_t to = met.stage(at);
    fetch_rows<P, MET>(to, p.q + first * p.pitch + column, p.pitch, n_valid);
    fetch_rows<P, MET>(to + met.TILE, p.d_y + first * p.y_pitch + column, p.y_pitch, n_valid);
    met.fetch_columns(a, p, first_head + at.in_group, at);
}

/* d_k and d_v. Blocks: x = key head + n_key * sequence, y = tile of keys; the first tiles, which
 * the most queries see, run first. Rows of the products are keys, columns queries. Queries beyond
 * the sequence are zeros, and so is what they add. */
template <int P, int MT, bool IS_HELD>
__device__ __forceinline__ void key_back(const struct strait_attention_args &a) {
    constexpr int ROWS = 16 * MT * WARPS;
    constexpr uint32_t TILE = tile_bytes<P>(MET);
    const int key_head = (int)(blockIdx.x % (unsigned)a.n_key), group = a.n_query / a.n_key;
    const struct head_rows p = head_rows_of<P>(a, key_head * group, key_head,
                                               (int)(blockIdx.x / (unsigned)a.n_key));
    const int first_key = (int)blockIdx.y * ROWS;
    const int warp_row = (int)threadIdx.x / 32 * 16 * MT;
    const int row = first_key + warp_row + lane_of() / 4;
    const uint32_t base = shared_base();
    met_queries<P> met;
    met.init(base + 2 * tile_bytes<P>(ROWS), first_key, a.seq_len);

    fetch_rows<P, ROWS>(base, p.k + first_key * p.pitch, p.pitch, a.seq_len - first_key);
    fetch_rows<P, ROWS>(base + tile_bytes<P>(ROWS), p.v + first_key * p.pitch, p.pitch,
                        a.seq_len - first_key);
    query_cursor at = {0, 0, 0}, next = {0, 0, 0};
    fetch_queries<P>(a, p, met, key_head * group, at);

    float d_k[MT][P / 8][4], d_v[MT][P / 8][4];
    clear<MT, P / 8>(d_k);
    clear<MT, P / 8>(d_v);
    own_rows<P, MT, IS_HELD> k, v;
    k.init(base, warp_row);
    v.init(base + tile_bytes<P>(ROWS), warp_row);
    const int n = group * met.n_tiles;
    for (; at.i < n; at = next) {
        copy_wait();
        __syncthreads();
        if (at.i == 0) {
            k.hold();
            v.hold();
        }
        met.advance(next);
        if (next.i < n) fetch_queries<P>(a, p, met, key_head * group, next);
        const uint32_t queries = met.stage(at);
    #pragma unroll 1
        for (int step = 0; step < MET; step += STEP) {
            if (met.first_query(at) + step + STEP - 1 < first_key + warp_row) continue;
            float score[MT][NT][4], d_share[MT][NT][4];
            product_with_rows<P, MT, NT, IS_HELD>(score, k, queries, step);
            product_with_rows<P, MT, NT, IS_HELD>(d_share, v, queries + TILE, step);
            const int column = step + lane_of() % 4 * 2;
            if (met.first_query(at) + step < first_key + warp_row + 16 * MT - 1)
                mask<MT, NT, true>(score, row, met.first_query(at) + column);
            differentiate_columns<MT>(score, d_share, queries + 2 * TILE + (uint32_t)column * 4,
                                      a.scale * LOG2_E);
            add_product<P, MT, NT>(d_v, score, queries + TILE, step);
            add_product<P, MT, NT>(d_k, d_share, queries, step);
        }
    }
    #pragma unroll
    for (int m = 0; m < MT; m++)
    #pragma unroll
        for (int half = 0; half < 2; half++)
            write_keys<P>(a, p, key_head, row + 16 * m + 8 * half, d_k[m], d_v[m], half);
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_query_back_64(const __grid_constant__ struct strait_attention_args a) {
    query_back<64, 2, true>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_query_back_128(const __grid_constant__ struct strait_attention_args a) {
    query_back<128, 1, true>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_key_back_64(const __grid_constant__ struct strait_attention_args a) {
    key_back<64, 2, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled_key_back_128(const __grid_constant__ struct strait_attention_args a) {
    key_back<128, 1, false>(a);
}

#endif
