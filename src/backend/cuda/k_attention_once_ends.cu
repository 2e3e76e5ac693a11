/* k_attention_once_ends.cu - what comes before and after k_attention_once.cu: the columns of
 * queries and the largest keys and values, of which the unit of the sums is made; then d_q from the
 * sums. */
#include "backend/cuda/attention_once.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // the host never launches them on older devices
namespace {

/* lse times log2 e, delta and the length of d_y for each head of a token, a lane for eight values.
 */
template <int P> __device__ __forceinline__ void columns(const strait_attention_args &a) {
    constexpr int LANES = P / 8;
    const int64_t index = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const bool is_inside = index < a.n_rows * a.n_query;
    float sum = 0, square = 0;
    if (is_inside) {
        const int64_t at = index * P + threadIdx.x % LANES * 8;
        float y[8], d_y[8];
        take<bf16, 8>(y, (const bf16 *)a.y + at);
        take<bf16, 8>(d_y, (const bf16 *)a.d_y + at);
    #pragma unroll
        for (int i = 0; i < 8; i++) {
            sum = fmaf(y[i], d_y[i], sum);
            square = fmaf(d_y[i], d_y[i], square);
        }
    }
    sum = warp_sum(sum, LANES);
    square = warp_sum(square, LANES);
    if (!is_inside || threadIdx.x % LANES != 0) return;
    a.power[index] = a.lse[index] * LOG2_E;
    a.delta[index] = sum;
    a.length[index] = sqrtf(square);
}

/* max |k| and max |v|^2 of 128 tokens of a head. Blocks: x = key head + n_key * sequence, y = tile
 * of tokens. */
template <int P> __device__ __forceinline__ void most(const strait_attention_args &a) {
    constexpr int LANES = P / 8;
    const int key_head = (int)(blockIdx.x % (unsigned)a.n_key),
              sequence = (int)(blockIdx.x / (unsigned)a.n_key);
    const head_rows p = head_rows_of<P>(a, key_head * (a.n_query / a.n_key), key_head, sequence);
    uint32_t k_most = 0,
             v_most = 0; // bits of floats that are not negative have their order, NaN above all
    #pragma unroll
    for (int i = 0; i < KEYS; i += STRAIT_ATTENTION_ONCE_COLUMN_THREADS / LANES) {
        const int row = (int)blockIdx.y * KEYS + i + (int)threadIdx.x / LANES;
        const int64_t at = min(row, a.seq_len - 1) * p.pitch + threadIdx.x % LANES * 8;
        float k[8], v[8], square = 0;
        take<bf16, 8>(k, (const bf16 *)p.k + at);
        take<bf16, 8>(v, (const bf16 *)p.v + at);
    #pragma unroll
        for (int c = 0; c < 8; c++) {
            k_most = max(k_most, __float_as_uint(k[c]) & 0x7fffffffu);
            square = fmaf(v[c], v[c], square);
        }
        v_most = max(v_most, __float_as_uint(warp_sum(square, LANES)) & 0x7fffffffu);
    }
    k_most = __reduce_max_sync(0xffffffffu, k_most);
    v_most = __reduce_max_sync(0xffffffffu, v_most);
    if (lane_of() != 0) return;
    atomicMax(a.most + 2 * blockIdx.x, k_most);
    atomicMax(a.most + 2 * blockIdx.x + 1, v_most);
}

/* Eight columns of two rows: what four lanes had of one n in add_queries. */
struct two_rows {
    int4 lane[4];

    __device__ __forceinline__ void read(const int *sums, int quad, int n) {
        const int4 *from = (const int4 *)sums + n * 128 + quad * 4;
    #pragma unroll
        for (int i = 0; i < 4; i++)
            lane[i] = __ldcs(from + i);
    }
    __device__ __forceinline__ void round(uint32_t out[4], int half, float size) const {
    #pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = half ? bf16_pair((float)lane[i].z * size, (float)lane[i].w * size)
                          : bf16_pair((float)lane[i].x * size, (float)lane[i].y * size);
    }
};

/* Turns the sums into d_q, rotated back if asked, as write_gradient does. A thread has two rows of
 * eight columns in either half of the head. Blocks: as many as sequences have heads (x = head +
 * n_query sequence), and tiles of 64 queries (y). */
template <int P> __device__ __forceinline__ void finish_queries(const strait_attention_args &a) {
    constexpr int PARTS = P / 16;
    const int head = (int)(blockIdx.x % (unsigned)a.n_query),
              sequence = (int)(blockIdx.x / (unsigned)a.n_query);
    const int key_head = head / (a.n_query / a.n_key), tile = (int)blockIdx.y;
    const head_rows p = head_rows_of<P>(a, head, key_head, sequence);
    const int part = (int)threadIdx.x % PARTS, quad = (int)threadIdx.x / PARTS;
    const float bound = bound_of(a, sequence, key_head);
    const int *sums = sums_of<P / GROUP_ROWS>(a, sequence, head, tile);
    two_rows low, high;
    low.read(sums, quad, part);
    high.read(sums, quad, part + PARTS);
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = tile * GROUP_ROWS + quad / 8 * 16 + quad % 8 + 8 * half;
        if (row >= a.seq_len) continue;
        const int64_t at = (p.first_row + row) * a.n_query + head;
        unit u;
        u.init(a.length[at] * bound);
        // NaN where they are not finite
        const float size = (u.size() + 0 * (a.power[at] + a.delta[at])) * a.scale;
        uint32_t x[4], y[4];
        low.round(x, half, size);
        high.round(y, half, size);
        if (a.cos != NULL) {
            const int64_t angle = (int64_t)row * (P / 4) + part * 4;
    #pragma unroll
            for (int i = 0; i < 4; i++)
                rotate_back_pairs(x[i], y[i], ((const float2 *)a.cos)[angle + i],
                                  ((const float2 *)a.sin)[angle + i]);
        }
        uint16_t *to = (uint16_t *)a.d_qkv + (p.first_row + row) * p.pitch + (int64_t)head * P +
                       part * 8;
        *(uint4 *)to = make_uint4(x[0], x[1], x[2], x[3]);
        *(uint4 *)(to + P / 2) = make_uint4(y[0], y[1], y[2], y[3]);
    }
}

} // namespace

    #define KERNELS(P)                                                                           \
        extern "C" __global__ void __launch_bounds__(STRAIT_ATTENTION_ONCE_COLUMN_THREADS)       \
            attention_once_columns_##P(const __grid_constant__ struct strait_attention_args a) { \
            columns<P>(a);                                                                       \
        }                                                                                        \
        extern "C" __global__ void __launch_bounds__(STRAIT_ATTENTION_ONCE_COLUMN_THREADS)       \
            attention_once_most_##P(const __grid_constant__ struct strait_attention_args a) {    \
            most<P>(a);                                                                          \
        }                                                                                        \
        extern "C" __global__ void __launch_bounds__(2 * P)                                      \
            attention_once_queries_##P(const __grid_constant__ struct strait_attention_args a) { \
            finish_queries<P>(a);                                                                \
        }

KERNELS(64)
KERNELS(128)

#endif
