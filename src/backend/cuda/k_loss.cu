/* k_loss.cu - cross-entropy of logits; the gradient replaces the logits (equations in ref_loss.c).
 *
 * One block per row. One pass computes the largest logit and the sum of exponentials together
 * (online softmax); the gradient reads the row again while it is in the cache. Nothing else as wide
 * as the vocabulary is stored. */
#include "backend/cuda/vector.cuh"

constexpr int THREADS = 512;

/* Pieces that a thread loads before it uses the first, to hide the latency of memory. */
constexpr int AHEAD = 4;

/* A sum of exponentials with its scale: its value is sum * exp(most). */
struct mass {
    float most, sum;
};

/* A maximum of -infinity (nothing seen yet) is not subtracted: exp(-inf - -inf) would be NaN. */
__device__ __forceinline__ float finite_base(float most) {
    return most == -INFINITY ? 0.0f : most;
}

__device__ __forceinline__ mass join(mass a, mass b) {
    const float most = fmaxf(a.most, b.most), base = finite_base(most);
    return {most, a.sum * fast_exp(a.most - base) + b.sum * fast_exp(b.most - base)};
}

/* `per_cap` is 1 / cap, or 0 without a cap. __fmul_rn keeps the compiler from fusing the product
 * with a later subtraction: the largest logit minus itself must be exactly 0. */
__device__ __forceinline__ float capped(float logit, float per_cap) {
    if (per_cap == 0.0f) return logit;
    const float part = logit * per_cap;
    return __fmul_rn(logit, rsqrtf(1.0f + part * part));
}

__device__ __forceinline__ float capped_slope(float logit, float per_cap) {
    if (per_cap == 0.0f) return 1.0f;
    const float part = logit * per_cap, root = rsqrtf(1.0f + part * part);
    return root * root * root;
}

/* The pieces of a row that a thread loads in one round, from column c on. */
template <typename T, int W> struct round_of {
    lanes<T, W> in[AHEAD];

    __device__ __forceinline__ static int step() {
        return (int)blockDim.x * W;
    }
    __device__ __forceinline__ void read(const T *row, int c, int cols) {
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * step() < cols) in[j] = load<T, W>(row + c + j * step());
    }
};

template <typename T, int W>
__device__ __forceinline__ mass add_piece(mass all, lanes<T, W> in, float per_cap) {
    float v[W];
    widen(v, in);
    float most = all.most;
#pragma unroll
    for (int i = 0; i < W; i++) {
        v[i] = capped(v[i], per_cap);
        most = fmaxf(most, v[i]);
    }
    const float base = finite_base(most);
    float sum = most > all.most ? all.sum * fast_exp(all.most - base) : all.sum;
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += fast_exp(v[i] - base);
    return {most, sum};
}

__device__ __forceinline__ mass warp_join(mass all) {
    for (int offset = 16; offset > 0; offset /= 2)
        all = join(all, {__shfl_xor_sync(0xffffffffu, all.most, offset),
                         __shfl_xor_sync(0xffffffffu, all.sum, offset)});
    return all;
}

/* The mass of a whole row, in every thread. */
template <typename T, int W>
__device__ __forceinline__ mass row_mass(const T *row, int cols, float per_cap) {
    __shared__ mass shared[32];
    const int n_warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    mass all = {-INFINITY, 0.0f};
    round_of<T, W> round;
    for (int c = (int)threadIdx.x * W; c < cols; c += AHEAD * round.step()) {
        round.read(row, c, cols);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (c + j * round.step() < cols) all = add_piece<T, W>(all, round.in[j], per_cap);
    }
    all = warp_join(all);
    if (lane == 0) shared[threadIdx.x / 32] = all;
    __syncthreads();
    return warp_join(lane < n_warps ? shared[lane] : mass{-INFINITY, 0.0f});
}

/* The constants of a row's gradient. */
struct slopes {
    mass all;
    int target;
    float per_cap, scale;
};

template <typename T, int W>
__device__ __forceinline__ void put_piece(T *to, lanes<T, W> in, int c, const slopes &slope) {
    float v[W];
    widen(v, in);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float d = fast_exp(capped(v[i], slope.per_cap) - slope.all.most) * slope.all.sum;
        v[i] = (c + i == slope.target ? d - 1.0f : d) *
               (capped_slope(v[i], slope.per_cap) * slope.scale);
    }
    put<T, W>(to, v);
}

/* Here slope.all.sum is the inverse of the row's sum. */
template <typename T, int W>
__device__ __forceinline__ void put_gradient(T *row, int cols, const slopes &slope) {
    round_of<T, W> round;
    for (int first = (int)threadIdx.x * W; first < cols; first += AHEAD * round.step()) {
        round.read(row, first, cols);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const int c = first + j * round.step();
            if (c < cols) put_piece<T, W>(row + c, round.in[j], c, slope);
        }
    }
}

template <typename T, int W> __device__ __forceinline__ void put_zeros(T *row, int cols) {
    const float zeros[W] = {};
    for (int c = (int)threadIdx.x * W; c < cols; c += (int)blockDim.x * W)
        put<T, W>(row + c, zeros);
}

template <typename T, int W>
__device__ __forceinline__ void cross_entropy(float *loss, T *row, int target, int cols,
                                              float per_cap, float scale) {
    if (target < 0) {
        if (threadIdx.x == 0) *loss = 0.0f;
        if (scale != 0.0f) put_zeros<T, W>(row, cols);
        return;
    }
    const mass all = row_mass<T, W>(row, cols, per_cap);
    if (threadIdx.x == 0) {
        float target_logit[1];
        take<T, 1>(target_logit, row + target);
        *loss = logf(all.sum) - (capped(target_logit[0], per_cap) - all.most);
    }
    if (scale == 0.0f) return;
    __syncthreads(); // thread 0 has read the target's logit before it is overwritten
    put_gradient<T, W>(row, cols, {{all.most, 1.0f / all.sum}, target, per_cap, scale});
}

#define CROSS_ENTROPY(T, suffix)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) cross_entropy_##suffix(            \
        float *loss, T *logits, const int32_t *targets, int cols, float per_cap, float scale) { \
        const int64_t n = blockIdx.x;                                                           \
        T *row = logits + n * cols;                                                             \
        if (cols % wide<T> == 0 && at16(logits))                                                \
            cross_entropy<T, wide<T>>(loss + n, row, targets[n], cols, per_cap, scale);         \
        else                                                                                    \
            cross_entropy<T, 1>(loss + n, row, targets[n], cols, per_cap, scale);               \
    }

CROSS_ENTROPY(float, f32)
CROSS_ENTROPY(bf16, bf16)
