/* k_sample.cu - the next token of each row of logits (defined by ref_sample.c), one block per row.
 *
 * A histogram over the values below the largest, in steps of equal size, is built once; every
 * search starts from it and then takes the key byte by byte among the tokens of one bin. Equal
 * steps spread the tokens over the bins, so that few threads add to one bin at a time. Sums are
 * whole numbers: their order does not matter. */
#include "backend/cuda/vector.cuh"
#include "backend/sample.h"

namespace {

constexpr int THREADS = 1024;
constexpr int BINS = 2 * THREADS;
/* Weights below exp(-28), in units of 2^-40, are 0. */
constexpr float REACH = 28.0f;

typedef unsigned long long u64;

/* Tokens, and the sum of their weights. */
struct share {
    u64 n, weight;
};

struct place {
    uint32_t key;
    u64 n_equal, weight;
};

struct row_state {
    share bins[BINS]; // of the bin and all before it
    u64 partial[THREADS / 32];
    share above; // before the bin that was found
    uint32_t found;
};

struct row {
    const float *logits;
    unsigned char *seen;
    int64_t n;
    strait_sample_row how;
    float top;
};

__device__ uint32_t key_at(const row &r, int64_t i) {
    const int is_seen = r.seen != nullptr && r.seen[i] != 0;
    return strait_sample_key(strait_sample_value(r.logits[i], &r.how, is_seen));
}

__device__ u64 weight_of(const row &r, uint32_t key) {
    return strait_sample_weight(key, r.top, r.how.temperature);
}

/* The first bin of a key; BINS where its weight is 0. */
__device__ int bin_of(const row &r, uint32_t key) {
    const float value = strait_sample_unkey(key);
    if (key == 0) return BINS;
    if (value == r.top) return 0;
    const float bin = (r.top - value) / r.how.temperature * (BINS / REACH);
    return bin < (float)BINS ? (int)bin : BINS;
}

/* The sum of the values of this thread and all before it. */
__device__ u64 sum_before(u64 value, u64 *partial) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int offset = 1; offset < 32; offset *= 2) {
        const u64 other = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset) value += other;
    }
    if (lane == 31) partial[warp] = value;
    __syncthreads();
    u64 before = 0;
    for (int w = 0; w < warp; w++)
        before += partial[w];
    __syncthreads();
    return before + value;
}

__device__ u64 largest_of(u64 value, u64 *partial) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const u64 other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = other > value ? other : value;
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++)
        value = partial[w] > value ? partial[w] : value;
    __syncthreads();
    return value;
}

__device__ void add_to(share *bin, u64 weight) {
    atomicAdd(&bin->n, 1ull);
    if (weight > 0) atomicAdd(&bin->weight, weight);
}

__device__ void clear(share *bins, int n) {
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        bins[i] = {0, 0};
    __syncthreads();
}

/* Every bin becomes the sum of itself and those before it. */
__device__ void accumulate(row_state &state) {
    share *pair = state.bins + 2 * threadIdx.x;
    const share a = pair[0], b = pair[1];
    const u64 n = sum_before(a.n + b.n, state.partial);
    const u64 weight = sum_before(a.weight + b.weight, state.partial);
    pair[0] = {n - b.n, weight - b.weight};
    pair[1] = {n, weight};
    __syncthreads();
}

__device__ void build_bins(row_state &state, const row &r) {
    clear(state.bins, BINS);
    for (int64_t i = threadIdx.x; i < r.n; i += THREADS) {
        const uint32_t key = key_at(r, i);
        const int bin = bin_of(r, key);
        if (bin < BINS) add_to(&state.bins[bin], weight_of(r, key));
    }
    __syncthreads();
    accumulate(state);
}

__device__ u64 amount(share s, int counts) {
    return counts ? s.n : s.weight;
}

/* The bin in which the target is reached, into state.found, and what is before it. */
__device__ void find_bin(row_state &state, u64 target, int counts) {
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS) {
        const share before = i > 0 ? state.bins[i - 1] : share{0, 0};
        if (amount(before, counts) < target && amount(state.bins[i], counts) >= target) {
            state.found = (uint32_t)i;
            state.above = before;
        }
    }
    __syncthreads();
}

/* One byte of the key, among tokens of bin `bin` whose higher bytes are `known`. */
__device__ uint32_t find_byte(row_state &state, share *bytes, const row &r, int bin, uint32_t known,
                              int shift, u64 target, int counts) {
    clear(bytes, 256);
    for (int64_t i = threadIdx.x; i < r.n; i += THREADS) {
        const uint32_t key = key_at(r, i);
        if (bin_of(r, key) != bin || (shift < 24 && key >> (shift + 8) != known)) continue;
        add_to(&bytes[255 - (key >> shift & 255u)], weight_of(r, key)); // the largest first
    }
    __syncthreads();
    const share own = threadIdx.x < 256 ? bytes[threadIdx.x] : share{0, 0};
    const share above = state.above;
    const u64 n = above.n + sum_before(own.n, state.partial);
    const u64 weight = above.weight + sum_before(own.weight, state.partial);
    const share before = {n - own.n, weight - own.weight};
    if (amount(before, counts) < target && amount({n, weight}, counts) >= target) {
        state.found = 255 - threadIdx.x;
        state.above = before;
    }
    __syncthreads();
    return state.found;
}

__device__ place find(row_state &state, share *bytes, const row &r, u64 target, int counts) {
    uint32_t key = 0;
    find_bin(state, target, counts);
    const int bin = (int)state.found;
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8)
        key = key << 8 | find_byte(state, bytes, r, bin, key, shift, target, counts);
    const u64 each = weight_of(r, key), unit = counts ? 1 : each;
    const u64 n_equal = unit == 0 ? 1 : (target - amount(state.above, counts) + unit - 1) / unit;
    const u64 weight = state.above.weight + n_equal * each;
    __syncthreads();
    return {key, n_equal, weight};
}

__device__ u64 likely_weight(row_state &state, const row &r) {
    const double least = (double)r.how.min_p * (double)STRAIT_SAMPLE_UNIT;
    u64 sum = 0;
    for (int64_t i = threadIdx.x; i < r.n; i += THREADS) {
        const u64 own = weight_of(r, key_at(r, i));
        if ((double)own >= least) sum += own;
    }
    sum = sum_before(sum, state.partial);
    if (threadIdx.x == THREADS - 1) state.above.weight = sum;
    __syncthreads();
    sum = state.above.weight;
    __syncthreads();
    return sum;
}

__device__ u64 kept_weight(row_state &state, share *bytes, const row &r) {
    const share all = state.bins[BINS - 1];
    u64 weight = all.weight;
    if (r.how.top_k > 0 && (u64)r.how.top_k < all.n)
        weight = find(state, bytes, r, (u64)r.how.top_k, 1).weight;
    if (r.how.top_p < 1.0f)
        weight = find(state, bytes, r, strait_sample_share(r.how.top_p, weight), 0).weight;
    if (!(r.how.min_p > 0.0f)) return weight;
    const u64 likely = likely_weight(state, r);
    return likely < weight ? likely : weight;
}

/* Of the tokens with this key, the n-th from 1; `count` tokens at a time. */
__device__ int32_t nth_of(row_state &state, const row &r, uint32_t key, u64 n) {
    u64 before = 0;
    for (int64_t first = 0; first < r.n; first += THREADS) {
        const int64_t i = first + threadIdx.x;
        const int is_equal = i < r.n && key_at(r, i) == key;
        const u64 here = (u64)__syncthreads_count(is_equal);
        if (before + here < n) {
            before += here;
            continue;
        }
        const u64 place = before + sum_before((u64)is_equal, state.partial);
        if (is_equal && place == n) state.found = (uint32_t)i;
        __syncthreads();
        return (int32_t)state.found;
    }
    return 0;
}

/* The largest key, and the first token that has it, found together: ids are counted down. */
__device__ int32_t first_token(row_state &state, row &r) {
    u64 best = 0;
    for (int64_t i = threadIdx.x; i < r.n; i += THREADS) {
        const u64 own = (u64)key_at(r, i) << 32 | (0xffffffffu - (uint32_t)i);
        best = own > best ? own : best;
    }
    best = largest_of(best, state.partial);
    r.top = strait_sample_unkey((uint32_t)(best >> 32));
    return best >> 32 == 0 ? -1 : (int32_t)(0xffffffffu - (uint32_t)best);
}

__device__ int32_t draw(row_state &state, share *bytes, row &r) {
    const int32_t first = first_token(state, r);
    if (first < 0 || strait_sample_is_greedy(&r.how)) return first < 0 ? 0 : first;
    build_bins(state, r);
    const u64 target = strait_sample_target(r.how.random, kept_weight(state, bytes, r));
    const place at = find(state, bytes, r, target, 0);
    return nth_of(state, r, at.key, at.n_equal);
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    sample(int32_t *tokens, unsigned char *seen, const float *logits, const strait_sample_row *rows,
           int64_t vocab) {
    __shared__ row_state state;
    __shared__ share bytes[256];
    const strait_sample_row how = rows[blockIdx.x];
    if (how.sequence < 0) return;
    row r = {logits + blockIdx.x * vocab, nullptr, vocab, how, 0.0f};
    if (seen != nullptr) r.seen = seen + how.sequence * vocab;
    const int32_t token = draw(state, bytes, r);
    __syncthreads(); // all have read `seen`
    if (threadIdx.x != 0) return;
    tokens[blockIdx.x] = token;
    if (r.seen != nullptr) r.seen[token] = 1;
}
