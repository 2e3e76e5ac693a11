/* k_attention_group.cu - attention of bf16 heads of 64 and 128 and its gradient for sm_90a.
 *
 * The passes of k_attention.cu and k_attention_back.cu, with products by warp groups (four warps,
 * 64 rows each); the groups of a block share the tiles of the other side. */
#include "backend/cuda/attention_back.cuh"
#include "backend/cuda/attention_group.cuh"
#include "backend/cuda/attention_softmax.cuh"

// the host never launches them on other devices
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

/* Bytes of the rows that a block owns, and of one panel of them. */
template <int BLOCK> constexpr int own_count = BLOCK / 2;
template <int BLOCK> constexpr uint32_t own_bytes = BLOCK / 128 * GROUP_TILE;

__device__ __forceinline__ int warp_row() {
    return (int)threadIdx.x / 32 * 16;
}
/* All lanes read it from the first: the compiler then knows that addresses of factors, which depend
 * on it, are the same in a warp, as products need them. */
template <int BLOCK> __device__ __forceinline__ int group_row() {
    return BLOCK == 128 ? 0 : __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) * GROUP;
}

/* Waits until everything copied so far is visible to all threads and to products. */
__device__ __forceinline__ void meet() {
    copy_wait();
    fence_shared();
    __syncthreads();
}

/* Starts to copy rows of either side, panel by panel. */
template <int PANELS, int N, int BLOCK>
__device__ __forceinline__ void fetch_panels(uint32_t to, const uint16_t *from, int64_t pitch,
                                             int n_valid) {
    #pragma unroll
    for (int p = 0; p < PANELS; p++)
        fetch_rows<GROUP, N, BLOCK>(to + tile_bytes<GROUP>(p * N), from + p * GROUP, pitch,
                                    n_valid);
}

/* A tile of keys and one of values. */
template <int PANELS, int BLOCK>
__device__ __forceinline__ void fetch_pair(uint32_t to, const uint16_t *keys, int to_values,
                                           int64_t pitch, int n_valid) {
    fetch_panels<PANELS, MET, BLOCK>(to, keys, pitch, n_valid);
    fetch_panels<PANELS, MET, BLOCK>(to + PANELS * GROUP_TILE, keys + to_values, pitch, n_valid);
}

/* Blocks as in k_attention.cu. */
template <int PANELS, int BLOCK>
__device__ __forceinline__ void forward(const strait_attention_args &a) {
    constexpr int P = PANELS * GROUP, ROWS = own_count<BLOCK>;
    constexpr uint32_t OWN_TILE = own_bytes<BLOCK>;
    constexpr uint32_t TILE = PANELS * GROUP_TILE;
    const int head = (int)(blockIdx.x % (unsigned)a.n_query), to_values = a.n_key * P;
    const struct head_rows p = head_rows_of<P>(a, head, head / (a.n_query / a.n_key),
                                               (int)(blockIdx.x / (unsigned)a.n_query));
    const int first_query = ((int)gridDim.y - 1 - (int)blockIdx.y) * ROWS;
    const int row = first_query + warp_row() + lane_of() / 4;
    const uint32_t base = shared_base(), stages = base + PANELS * OWN_TILE;
    fetch_panels<PANELS, ROWS, BLOCK>(base, p.q + first_query * p.pitch, p.pitch,
                                      a.seq_len - first_query);
    fetch_pair<PANELS, BLOCK>(stages, p.k, to_values, p.pitch, a.seq_len);
    meet();
    group_own<PANELS> query;
    query.init(base, OWN_TILE, group_row<BLOCK>());
    group_rows share;
    running<P, 1> r;
    start(r);
    const int end = min(first_query + ROWS, a.seq_len);
    const uint16_t *keys = p.k;
    for (int first = 0, stage = 0; first < end; first += MET, stage ^= 1) {
        meet();
        keys += MET * p.pitch;
        if (first + MET < end)
            fetch_pair<PANELS, BLOCK>(stages + (uint32_t)(stage ^ 1) * 2 * TILE, keys, to_values,
                                      p.pitch, a.seq_len - first - MET);
        const int own = first_query + group_row<BLOCK>();
        if (first > own || own >= a.seq_len) continue; // all keys masked, or no rows
        const uint32_t tile = stages + (uint32_t)stage * 2 * TILE;
        float score[1][8][4];
        fence_registers();
        query.start(score[0], tile);
        group_wait<0>(score[0]);
        if (first == own) mask<1, 8, false>(score, row, first + lane_of() % 4 * 2);
    #pragma unroll
        for (int half = 0; half < 2; half++)
            softmax_row<P, 8>(score[0], r.mean[0], r.max[0][half], r.sum[0][half], half,
                              a.scale * LOG2_E);
        round_rows(share, score[0]);
        settle(r.mean[0]);
        fence_registers();
        start_sum<PANELS>(r.mean[0], share, tile + TILE);
        group_wait<0, PANELS>(r.mean[0]);
    }
    finish<P, 1>(a, r, p.first_row, head, row);
}

/* The gradient of the scores of one tile of keys, in the layout of left factors. */
template <int PANELS>
__device__ __forceinline__ void meet_keys(group_rows &out, const group_own<PANELS> &query,
                                          const group_own<PANELS> &d_y, uint32_t tile,
                                          const query_columns<1> &columns, float scale,
                                          int mask_row, int mask_key) {
    float score[1][8][4], d_share[1][8][4];
    fence_registers();
    query.start(score[0], tile);
    d_y.start(d_share[0], tile + PANELS * GROUP_TILE);
    group_wait<1>(score[0]);
    if (mask_key >= 0) mask<1, 8, false>(score, mask_row, mask_key);
    group_wait<0>(d_share[0]);
    differentiate<1, 8>(score, d_share, columns, scale);
    round_rows(out, d_share[0]);
}

/* Blocks as in k_attention_back.cu. */
template <int PANELS, int BLOCK>
__device__ __forceinline__ void query_back(const strait_attention_args &a) {
    constexpr int P = PANELS * GROUP, ROWS = own_count<BLOCK>;
    constexpr uint32_t OWN_TILE = own_bytes<BLOCK>;
    constexpr uint32_t TILE = PANELS * GROUP_TILE;
    const struct block_place place = place_of(a);
    const int head = place.pair % a.n_query, to_values = a.n_key * P;
    const struct head_rows p = head_rows_of<P>(a, head, head / (a.n_query / a.n_key),
                                               place.pair / a.n_query);
    const int first_query = ((int)gridDim.y - 1 - place.turn) * ROWS;
    const int row = first_query + warp_row() + lane_of() / 4, n_own = a.seq_len - first_query;
    const uint32_t base = shared_base(), stages = base + 2 * PANELS * OWN_TILE;
    fetch_panels<PANELS, ROWS, BLOCK>(base, p.q + first_query * p.pitch, p.pitch, n_own);
    fetch_panels<PANELS, ROWS, BLOCK>(base + PANELS * OWN_TILE, p.d_y + first_query * p.y_pitch,
                                      p.y_pitch, n_own);
    fetch_pair<PANELS, BLOCK>(stages, p.k, to_values, p.pitch, a.seq_len);
    query_columns<1> columns;
    columns.read(a, p, head, row);
    meet();
    group_own<PANELS> query, d_y;
    query.init(base, OWN_TILE, group_row<BLOCK>());
    d_y.init(base + PANELS * OWN_TILE, OWN_TILE, group_row<BLOCK>());
    group_rows d_score;
    float d_q[1][8 * PANELS][4];
    clear<1, 8 * PANELS>(d_q);
    const int end = min(first_query + ROWS, a.seq_len);
    const uint16_t *keys = p.k;
    for (int first = 0, stage = 0; first < end; first += MET, stage ^= 1) {
        meet();
        keys += MET * p.pitch;
        if (first + MET < end)
            fetch_pair<PANELS, BLOCK>(stages + (uint32_t)(stage ^ 1) * 2 * TILE, keys, to_values,
                                      p.pitch, a.seq_len - first - MET);
        const int own = first_query + group_row<BLOCK>();
        if (first > own || own >= a.seq_len) continue; // all keys masked, or no rows
        const uint32_t tile = stages + (uint32_t)stage * 2 * TILE;
        meet_keys<PANELS>(d_score, query, d_y, tile, columns, a.scale * LOG2_E, row,
                          first == own ? first + lane_of() % 4 * 2 : -1);
        fence_registers();
        start_sum<PANELS>(d_q[0], d_score, tile);
        group_wait<0, PANELS>(d_q[0]);
    }
    write_queries<P, 1>(a, p, head, row, d_q);
}

/* One tile of queries: the product for d_v runs while the gradient of scores is computed. */
template <int PANELS>
__device__ __forceinline__ void meet_queries(float d_k[8 * PANELS][4], float d_v[8 * PANELS][4],
                                             const group_own<PANELS> &key,
                                             const group_own<PANELS> &val, uint32_t tile,
                                             float scale, int mask_row, int mask_query) {
    constexpr uint32_t TILE = PANELS * GROUP_TILE;
    float score[1][8][4], d_share[1][8][4];
    group_rows share, d_score;
    fence_registers();
    key.start(score[0], tile);
    val.start(d_share[0], tile + TILE);
    group_wait<1>(score[0]);
    if (mask_query >= 0) mask<1, 8, true>(score, mask_row, mask_query);
    const uint32_t columns = tile + 2 * TILE + (uint32_t)(lane_of() % 4) * 8;
    #pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 lse = shared_pair(columns + (uint32_t)n * 32);
    #pragma unroll
        for (int i = 0; i < 4; i++)
            score[0][n][i] = power_of_2(score[0][n][i] * scale - (i % 2 ? lse.y : lse.x) * LOG2_E);
    }
    round_rows(share, score[0]);
    fence_registers();
    start_sum<PANELS>(d_v, share, tile + TILE);
    group_wait<1>(d_share[0]);
    #pragma unroll
    for (int n = 0; n < 8; n++) {
        const float2 delta = shared_pair(columns + MET * 4 + (uint32_t)n * 32);
    #pragma unroll
        for (int i = 0; i < 4; i++)
            d_share[0][n][i] = score[0][n][i] * (d_share[0][n][i] - (i % 2 ? delta.y : delta.x));
    }
    round_rows(d_score, d_share[0]);
    fence_registers();
    start_sum<PANELS>(d_k, d_score, tile);
    group_wait<0, PANELS>(d_k);
    group_wait<0, PANELS>(d_v);
}

/* Starts to copy a tile of queries, its d_y, lse and delta. */
template <int PANELS, int BLOCK>
__device__ __forceinline__ void fetch_queries(const strait_attention_args &a, const head_rows &p,
                                              const met_queries<PANELS * GROUP> &met,
                                              int first_head, const query_cursor &at) {
    const int first = met.first_query(at), n_valid = a.seq_len - first;
    const int column = at.in_group * PANELS * GROUP;
    const uint32_t to = met.stage(at);
    fetch_panels<PANELS, MET, BLOCK>(to, p.q + first * p.pitch + column, p.pitch, n_valid);
    fetch_panels<PANELS, MET, BLOCK>(to + met.TILE, p.d_y + first * p.y_pitch + column, p.y_pitch,
                                     n_valid);
    met.fetch_columns(a, p, first_head + at.in_group, at);
}

/* Blocks as in k_attention_back.cu. */
template <int PANELS, int BLOCK>
__device__ __forceinline__ void key_back(const strait_attention_args &a) {
    constexpr int P = PANELS * GROUP, ROWS = own_count<BLOCK>;
    constexpr uint32_t OWN_TILE = own_bytes<BLOCK>;
    const struct block_place place = place_of(a);
    const int key_head = place.pair % a.n_key, group = a.n_query / a.n_key;
    const struct head_rows p = head_rows_of<P>(a, key_head * group, key_head, place.pair / a.n_key);
    const int first_key = place.turn * ROWS, n_own = a.seq_len - first_key;
    const int row = first_key + warp_row() + lane_of() / 4;
    const uint32_t base = shared_base(), values = base + PANELS * OWN_TILE;
    met_queries<P> met;
    met.init(values + PANELS * OWN_TILE, first_key, a.seq_len);
    fetch_panels<PANELS, ROWS, BLOCK>(base, p.k + first_key * p.pitch, p.pitch, n_own);
    fetch_panels<PANELS, ROWS, BLOCK>(values, p.v + first_key * p.pitch, p.pitch, n_own);
    query_cursor at = {0, 0, 0}, next = {0, 0, 0};
    fetch_queries<PANELS, BLOCK>(a, p, met, key_head * group, at);
    meet();
    group_own<PANELS> key, val;
    key.init(base, OWN_TILE, group_row<BLOCK>());
    val.init(values, OWN_TILE, group_row<BLOCK>());
    float d_k[1][8 * PANELS][4], d_v[1][8 * PANELS][4];
    clear<1, 8 * PANELS>(d_k);
    clear<1, 8 * PANELS>(d_v);
    const int n = group * met.n_tiles;
    for (; at.i < n; at = next) {
        meet();
        met.advance(next);
        if (next.i < n) fetch_queries<PANELS, BLOCK>(a, p, met, key_head * group, next);
        const int first = met.first_query(at), own = first_key + group_row<BLOCK>();
        if (first < own) continue; // none of these queries sees the group's keys
        meet_queries<PANELS>(d_k[0], d_v[0], key, val, met.stage(at), a.scale * LOG2_E, row,
                             first == own ? first + lane_of() % 4 * 2 : -1);
    }
    #pragma unroll
    for (int half = 0; half < 2; half++)
        write_keys<P>(a, p, key_head, row + 8 * half, d_k[0], d_v[0], half);
}

} // namespace

extern "C" __global__ void __launch_bounds__(256, 2)
    attention_group_64(const __grid_constant__ struct strait_attention_args a) {
    forward<1, 256>(a);
}

extern "C" __global__ void __launch_bounds__(384, 1)
    attention_group_128(const __grid_constant__ struct strait_attention_args a) {
    forward<2, 384>(a);
}

/* Heads of 64 have small tiles: several blocks fit into a processor. While one waits for its
 * products, its first rows or its writes, the others compute. */
extern "C" __global__ void __launch_bounds__(256, 2)
    attention_group_query_back_64(const __grid_constant__ struct strait_attention_args a) {
    query_back<1, 256>(a);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    attention_group_query_back_128(const __grid_constant__ struct strait_attention_args a) {
    query_back<2, 256>(a);
}

extern "C" __global__ void __launch_bounds__(128, 3)
    attention_group_key_back_64(const __grid_constant__ struct strait_attention_args a) {
    key_back<1, 128>(a);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    attention_group_key_back_128(const __grid_constant__ struct strait_attention_args a) {
    key_back<2, 256>(a);
}

#endif
