/* k_codec.cu - kernels of transparent codecs: top-k payloads and the Hadamard transform. */
#include "backend/cuda/payload.cuh"
#include "backend/cuda/vector.cuh"

/* Magnitudes of floats compare like their bits without the sign. Values that may not be sent count
 * as 0. */
__device__ __forceinline__ uint32_t magnitude_of(float value) {
    const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
    return bits <= __float_as_uint(STRAIT_WIRE_LIMIT) ? bits : 0u;
}

constexpr int HELD = 16; // columns that a thread keeps in registers; others are read again

/* A thread's columns [first, end) of a row. */
struct own_columns {
    const float *row;
    int64_t first, end;
    uint32_t held[HELD];
};

__device__ __forceinline__ void hold(own_columns &own) {
#pragma unroll
    for (int i = 0; i < HELD; i++)
        own.held[i] = own.first + i < own.end ? magnitude_of(own.row[own.first + i]) : 0u;
}

/* How many of the thread's columns have at least magnitude `least`, which is not 0. */
__device__ __forceinline__ int count_own(const own_columns &own, uint32_t least) {
    int n = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        n += own.held[i] >= least;
    for (int64_t c = own.first + HELD; c < own.end; c++)
        n += magnitude_of(own.row[c]) >= least;
    return n;
}

/* The sum over the block; *before is the sum over the threads before this one (a prefix sum).
 * `shared` is 32 ints of shared memory. */
__device__ __forceinline__ int block_count(int n, int *before, int *shared) {
    const int lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    int up_to = n;
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, up_to, offset);
        if (lane >= offset) up_to += other;
    }
    if (lane == 31) shared[threadIdx.x / 32] = up_to;
    __syncthreads();
    int total = 0, earlier = 0;
    for (int w = 0; w < n_warps; w++) {
        if (w < (int)threadIdx.x / 32) earlier += shared[w];
        total += shared[w];
    }
    __syncthreads();
    *before = earlier + up_to - n;
    return total;
}

/* The largest magnitude that at least `keep` values of the row reach: a binary search over bits,
 * the same in every thread. */
__device__ __forceinline__ uint32_t threshold(const own_columns &own, int64_t keep, int *shared) {
    uint32_t low = 0, high = 0x7fffffffu;
    int before;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (block_count(count_own(own, middle), &before, shared) >= keep)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* One block per row. bytes: values [rows x keep] as bf16, then columns of n_index bytes each.
 * Threads own ranges of columns; prefix sums tell each where its kept values go, in the order of
 * columns. */
extern "C" __global__ void __launch_bounds__(1024)
    topk_pack(unsigned char *bytes, const float *x, int64_t rows, int64_t cols, int64_t keep,
              int n_index, strait_pack_params params) {
    __shared__ int shared[32];
    const int64_t each = (cols + blockDim.x - 1) / blockDim.x, from = threadIdx.x * each;
    own_columns own = {x + blockIdx.x * cols,
                       from < cols ? from : cols,
                       from + each < cols ? from + each : cols,
                       {}};
    hold(own);
    const uint32_t least = threshold(own, keep, shared);
    const int mine = count_own(own, least + 1);
    int larger_before, equal_before;
    const int64_t equals = keep - block_count(mine, &larger_before, shared);
    int same = 0;
    for (int64_t c = own.first; c < own.end; c++)
        same += magnitude_of(own.row[c]) == least;
    block_count(same, &equal_before, shared);
    unsigned char *columns = bytes + rows * keep * 2;
    int64_t at = blockIdx.x * keep + larger_before +
                 (equal_before < equals ? equal_before : equals);
    for (int64_t c = own.first; c < own.end; c++) {
        const float value = own.row[c];
        const uint32_t size = magnitude_of(value);
        if (size < least || (size == least && equal_before++ >= equals)) continue;
        uint32_t words[4] = {};
        float bad = 0;
        if (params.is_stochastic) wire_draw(words, params, (uint64_t)at / 4);
        const uint32_t even = (at & 2) != 0 ? words[2] : words[0];
        const uint32_t odd = (at & 2) != 0 ? words[3] : words[1];
        const uint32_t half = wire_half(wire_value(value, &bad), params.is_stochastic,
                                        (at & 1) != 0 ? odd : even);
        put_bytes(bytes + at * 2, half, 2);
        put_bytes(columns + at * n_index, (uint32_t)c, n_index);
        at++;
    }
}

/* Whether the columns of a row strictly increase, as valid payloads have them; in every lane. */
__device__ __forceinline__ bool is_increasing(const unsigned char *columns, int64_t keep,
                                              int n_index) {
    bool is_sorted = true;
    for (int64_t i = threadIdx.x % 32; i + 1 < keep; i += 32)
        is_sorted = is_sorted && take_bytes(columns + i * n_index, n_index) <
                                     take_bytes(columns + (i + 1) * n_index, n_index);
    return __all_sync(0xffffffffu, is_sorted);
}

/* One warp per row. Columns that are not increasing may repeat: one lane then restores the row in
 * order, so that the last of equal columns wins, every time. */
extern "C" __global__ void __launch_bounds__(256)
    topk_restore(float *x, float *stats, const unsigned char *bytes, int64_t rows, int64_t cols,
                 int64_t keep, int n_index) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    const unsigned char *values = bytes + row * keep * 2;
    const unsigned char *columns = bytes + rows * keep * 2 + row * keep * n_index;
    float *to = x + row * cols;
    for (int64_t c = lane; c < cols; c += 32)
        to[c] = 0.0f;
    const bool is_sorted = is_increasing(columns, keep, n_index);
    __syncwarp();
    float size = 0, bad = 0;
    for (int64_t i = is_sorted ? lane : 0; i < keep; i += is_sorted ? 32 : 1) {
        if (!is_sorted && lane != 0) break;
        const float value = wire_value(wire_float(take_bytes(values + i * 2, 2)), &bad);
        const int64_t column = take_bytes(columns + i * n_index, n_index);
        if (column < cols)
            to[column] = value;
        else
            bad += 1.0f;
        size += value * value;
    }
    __syncwarp();
    size = warp_sum(size);
    bad = warp_sum(bad);
    if (stats == nullptr || lane != 0) return;
    stats[row * 3 + 1] += size;
    stats[row * 3 + 2] += bad;
}

constexpr int SPAN = 8192; // values per block in shared memory: whole tiles, unless one is larger

/* One round of the transform: sums and differences of values `step` apart, over n values. */
__device__ __forceinline__ void butterflies(float *v, int64_t n, int64_t step) {
    __syncthreads();
    for (int64_t p = threadIdx.x; p < n / 2; p += blockDim.x) {
        const int64_t i = (p & ~(step - 1)) * 2 + (p & (step - 1));
        const float a = v[i], b = v[i + step];
        v[i] = a + b;
        v[i + step] = a - b;
    }
}

/* The rounds of steps 1 to 64 on four consecutive values per lane: within the lane, then by
 * shuffles. The order of rounds is that of the reference loop, which fixes the bits. */
__device__ __forceinline__ void transform_in_warp(float v[4], int64_t tile) {
    const float a = v[0], b = v[1], c = v[2], d = v[3];
    if (tile >= 2) {
        v[0] = a + b;
        v[1] = a - b;
        v[2] = c + d;
        v[3] = c - d;
    }
    if (tile >= 4) {
        const float e = v[0], f = v[1];
        v[0] = e + v[2];
        v[1] = f + v[3];
        v[2] = e - v[2];
        v[3] = f - v[3];
    }
    for (int offset = 1; offset < 32 && 8 * offset <= tile; offset *= 2) {
        const bool is_high = ((int)threadIdx.x & offset) != 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float other = __shfl_xor_sync(0xffffffffu, v[i], offset);
            v[i] = is_high ? other - v[i] : v[i] + other;
        }
    }
}

/* A block transforms `span` of the n values: whole tiles. Tiles of up to 128 values stay in
 * registers; larger ones continue in shared memory, or in y where a tile exceeds that. */
extern "C" __global__ void __launch_bounds__(256)
    hadamard(float *y, const float *x, int64_t n, int64_t tile, int64_t span) {
    __shared__ __align__(16) float shared[SPAN];
    const int64_t first = blockIdx.x * span, here = n - first < span ? n - first : span;
    const float norm = 1.0f / sqrtf((float)tile);
    float *v = span <= SPAN ? shared : y + first;
    const bool is_small = tile <= 128;
    for (int64_t base = 0; base < here; base += 1024) { // uniform in all lanes of a warp
        const int64_t at = base + threadIdx.x * 4;
        const bool is_whole = at + 4 <= here && at16(y + first, x + first);
        float part[4] = {};
        if (is_whole)
            take<float, 4>(part, x + first + at);
        else
            for (int i = 0; i < 4; i++)
                if (at + i < here) part[i] = x[first + at + i];
        transform_in_warp(part, tile);
        for (int i = 0; i < 4; i++)
            part[i] *= is_small ? norm : 1.0f;
        float *to = is_small ? y + first : v;
        if (is_whole)
            put<float, 4>(to + at, part);
        else
            for (int i = 0; i < 4; i++)
                if (at + i < here) to[at + i] = part[i];
    }
    if (is_small) return;
    for (int64_t step = 128; step < tile; step *= 2)
        butterflies(v, here, step);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < here; i += blockDim.x)
        y[first + i] = v[i] * norm;
}
