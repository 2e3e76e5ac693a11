/* k_attention_plain.cu - causal attention of any head up to STRAIT_ATTENTION_HEAD_MAX wide, in f32
 * arithmetic on any device.
 *
 * A block owns TILE rows (queries, or keys in key_back) with TILE lanes each, and processes the
 * rows of the other side TILE at a time: lane c computes the score of the c-th, then all lanes of
 * the row share the scores and each sums columns c, c + TILE and so on. Rows of the other side are
 * in shared memory; a block's own rows are read through the cache. */
#include "backend/cuda/attention.h"
#include "backend/cuda/attention_value.cuh"

namespace {

constexpr int TILE = STRAIT_ATTENTION_PLAIN_TILE;
constexpr int PARTS = STRAIT_ATTENTION_HEAD_MAX / TILE; // columns summed per lane
constexpr int PITCH = STRAIT_ATTENTION_HEAD_MAX +
                      1; // odd, so that the rows of a column use different banks
constexpr unsigned ALL = 0xffffffffu;

/* Pointers to one head in the first row of one sequence. */
template <typename T> struct head_rows {
    const T *q, *k, *v, *d_y;
    T *y, *d_q, *d_k, *d_v;
    float *lse, *delta;
    int64_t pitch, y_pitch;
};

template <typename T>
__device__ struct head_rows<T> head_rows_of(const struct strait_attention_args &a, int head,
                                            int sequence) {
    struct head_rows<T> p;
    const int64_t dim = a.head_dim, row = (int64_t)sequence * a.seq_len;
    const int64_t to_k = (a.n_query + head / (a.n_query / a.n_key)) * dim,
                  to_v = to_k + a.n_key * dim;
    p.pitch = (a.n_query + 2 * a.n_key) * dim;
    p.y_pitch = a.n_query * dim;
    const T *qkv = (const T *)a.qkv + row * p.pitch;
    T *d_qkv = (T *)a.d_qkv + row * p.pitch;
    p.q = qkv + head * dim;
    p.k = qkv + to_k;
    p.v = qkv + to_v;
    p.d_q = d_qkv + head * dim;
    p.d_k = d_qkv + to_k;
    p.d_v = d_qkv + to_v;
    p.y = (T *)a.y + row * p.y_pitch + head * dim;
    p.d_y = (const T *)a.d_y + row * p.y_pitch + head * dim;
    p.lse = a.lse + row * a.n_query + head;
    p.delta = a.delta + row * a.n_query + head;
    return p;
}

/* Copies TILE rows to shared memory; rows from n_valid on become zeros. All threads of the block.
 */
template <typename T>
__device__ void fetch(float *to, const T *from, int64_t pitch, int n_valid, int dim) {
    const int lane = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE;
    for (int i = lane; i < dim; i += TILE)
        to[row * PITCH + i] = row < n_valid ? value_at(from + row * pitch + i) : 0;
}

template <typename T> __device__ float dot(const T *own, const float *met, int dim) {
    float sum = 0;
    for (int i = 0; i < dim; i++)
        sum = fmaf(value_at(own + i), met[i], sum);
    return sum;
}

/* sum += the rows of the tile, each times the share of its lane. */
__device__ __forceinline__ void add_rows(float sum[PARTS], float share, const float *tile,
                                         int dim) {
    const int lane = (int)threadIdx.x % TILE;
    for (int j = 0; j < TILE; j++) {
        const float part = __shfl_sync(ALL, share, j, TILE);
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            if (i * TILE + lane < dim)
                sum[i] = fmaf(part, tile[j * PITCH + i * TILE + lane], sum[i]);
    }
}

template <typename T>
__device__ __forceinline__ void write_row(T *to, const float sum[PARTS], float scale, int dim) {
    const int lane = (int)threadIdx.x % TILE;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        if (i * TILE + lane < dim) put_value(to + i * TILE + lane, sum[i] * scale);
}

__device__ __forceinline__ float max_of_lanes(float x) {
    for (int step = TILE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL, x, step, TILE));
    return x;
}

/* Blocks of every pass: x = head + heads * sequence, y = tile of own rows. */
template <typename T> __device__ void forward(const struct strait_attention_args &a) {
    __shared__ float keys[TILE * PITCH], values[TILE * PITCH];
    const int head = (int)blockIdx.x % a.n_query, dim = a.head_dim;
    const struct head_rows<T> p = head_rows_of<T>(a, head, (int)blockIdx.x / a.n_query);
    const int lane = (int)threadIdx.x % TILE, tile_row = (int)blockIdx.y * TILE;
    const int row = tile_row + (int)threadIdx.x / TILE;
    const T *query = p.q + min(row, a.seq_len - 1) * p.pitch;
    float mean[PARTS] = {0}, max = -INFINITY, sum = 0;
    for (int first = 0; first < min(tile_row + TILE, a.seq_len); first += TILE) {
        __syncthreads();
        fetch(keys, p.k + first * p.pitch, p.pitch, a.seq_len - first, dim);
        fetch(values, p.v + first * p.pitch, p.pitch, a.seq_len - first, dim);
        __syncthreads();
        float score = a.scale * dot(query, keys + lane * PITCH, dim);
        if (first + lane > row) score = -INFINITY;
        const float top = fmaxf(max, max_of_lanes(score)), shrink = expf(max - top);
        const float share = expf(score - top);
        max = top;
        sum = sum * shrink + warp_sum(share, TILE);
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            mean[i] *= shrink;
        add_rows(mean, share, values, dim);
    }
    if (row >= a.seq_len) return;
    write_row(p.y + row * p.y_pitch, mean, 1 / sum, dim);
    if (a.lse != NULL && lane == 0) p.lse[(int64_t)row * a.n_query] = max + logf(sum);
}

template <typename T> __device__ void query_back(const struct strait_attention_args &a) {
    __shared__ float keys[TILE * PITCH], values[TILE * PITCH];
    const int head = (int)blockIdx.x % a.n_query, dim = a.head_dim;
    const struct head_rows<T> p = head_rows_of<T>(a, head, (int)blockIdx.x / a.n_query);
    const int lane = (int)threadIdx.x % TILE, tile_row = (int)blockIdx.y * TILE;
    const int row = tile_row + (int)threadIdx.x / TILE, at = min(row, a.seq_len - 1);
    const T *query = p.q + at * p.pitch, *d_y = p.d_y + at * p.y_pitch;
    const float lse = p.lse[(int64_t)at * a.n_query], delta = p.delta[(int64_t)at * a.n_query];
    float d_q[PARTS] = {0};
    for (int first = 0; first < min(tile_row + TILE, a.seq_len); first += TILE) {
        __syncthreads();
        fetch(keys, p.k + first * p.pitch, p.pitch, a.seq_len - first, dim);
        fetch(values, p.v + first * p.pitch, p.pitch, a.seq_len - first, dim);
        __syncthreads();
        const float score = a.scale * dot(query, keys + lane * PITCH, dim);
        const float share = first + lane > row ? 0 : expf(score - lse);
        const float d_share = dot(d_y, values + lane * PITCH, dim);
        add_rows(d_q, share * (d_share - delta), keys, dim);
    }
    if (row < a.seq_len) write_row(p.d_q + row * p.pitch, d_q, a.scale, dim);
}

/* Queries beyond the sequence are zeros, and so is what they add. */
template <typename T> __device__ void key_back(const struct strait_attention_args &a) {
    __shared__ float queries[TILE * PITCH], d_ys[TILE * PITCH];
    const int group = a.n_query / a.n_key, dim = a.head_dim;
    const int first_head = (int)blockIdx.x % a.n_key * group;
    const int lane = (int)threadIdx.x % TILE, tile_row = (int)blockIdx.y * TILE;
    const int row = tile_row + (int)threadIdx.x / TILE, own = min(row, a.seq_len - 1);
    float d_k[PARTS] = {0}, d_v[PARTS] = {0};
    struct head_rows<T> p;
    for (int head = first_head; head < first_head + group; head++) {
        p = head_rows_of<T>(a, head, (int)blockIdx.x / a.n_key);
        const T *key = p.k + own * p.pitch, *val = p.v + own * p.pitch;
        for (int first = tile_row; first < a.seq_len; first += TILE) {
            __syncthreads();
            fetch(queries, p.q + first * p.pitch, p.pitch, a.seq_len - first, dim);
            fetch(d_ys, p.d_y + first * p.y_pitch, p.y_pitch, a.seq_len - first, dim);
            __syncthreads();
            const int query = first + lane;
            const int64_t at = (int64_t)min(query, a.seq_len - 1) * a.n_query;
            const bool is_seen = row <= query && query < a.seq_len;
            const float score = a.scale * dot(key, queries + lane * PITCH, dim);
            const float share = is_seen ? expf(score - p.lse[at]) : 0;
            const float d_share = dot(val, d_ys + lane * PITCH, dim);
            add_rows(d_k, share * (d_share - p.delta[at]), queries, dim);
            add_rows(d_v, share, d_ys, dim);
        }
    }
    if (row >= a.seq_len) return;
    write_row(p.d_k + row * p.pitch, d_k, a.scale, dim);
    write_row(p.d_v + row * p.pitch, d_v, 1, dim);
}

/* delta: `width` lanes, a power of two, per head and token; W values at a time. */
template <typename T, int W>
__device__ __forceinline__ void delta_of_heads(const struct strait_attention_args &a, int width) {
    const int64_t index = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / width;
    const bool is_inside = index < a.n_rows * a.n_query;
    const int64_t first = index * a.head_dim;
    float sum = 0;
    for (int c = (int)threadIdx.x % width * W; is_inside && c < a.head_dim; c += width * W) {
        float y[W], d_y[W];
        take<T, W>(y, (const T *)a.y + first + c);
        take<T, W>(d_y, (const T *)a.d_y + first + c);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum = fmaf(y[i], d_y[i], sum);
    }
    sum = warp_sum(sum, width);
    if (is_inside && (int)threadIdx.x % width == 0) a.delta[index] = sum;
}

template <typename T> __device__ void delta(const struct strait_attention_args &a) {
    if (a.head_dim % 32 == 0 && at16(a.y, a.d_y))
        delta_of_heads<T, wide<T>>(a, STRAIT_ATTENTION_DELTA_LANES);
    else
        delta_of_heads<T, 1>(a, STRAIT_ATTENTION_DELTA_LANES);
}

} // namespace

/* Each pass for both types. */
#define KERNEL(name, pass)                                                    \
    extern "C" __global__ void __launch_bounds__(TILE *TILE)                  \
        name##_f32(const __grid_constant__ struct strait_attention_args a) {  \
        pass<float>(a);                                                       \
    }                                                                         \
    extern "C" __global__ void __launch_bounds__(TILE *TILE)                  \
        name##_bf16(const __grid_constant__ struct strait_attention_args a) { \
        pass<bf16>(a);                                                        \
    }

KERNEL(attention_plain, forward)
KERNEL(attention_plain_query_back, query_back)
KERNEL(attention_plain_key_back, key_back)
KERNEL(attention_delta, delta)

/* Transposes lse from cuDNN's layout [sequence][head][token] to [token][head]. */
extern "C" __global__ void attention_lse(const __grid_constant__ struct strait_attention_args a,
                                         const float *__restrict__ by_head) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n_rows * a.n_query) return;
    const int64_t row = i / a.n_query, head = i % a.n_query;
    const int64_t sequence = row / a.seq_len, token = row % a.seq_len;
    a.lse[i] = by_head[(sequence * a.n_query + head) * a.seq_len + token];
}
