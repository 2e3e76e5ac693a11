/* k_norm.cu - root-mean-square norm with the residual sum before it, and its gradient (equations in
 * ref_norm.c).
 *
 * One block per row; in the gradient one team of threads per row. Each thread keeps some values of
 * the row in registers between the two passes; the rest of a very wide row is read twice. */
#include "backend/cuda/vector.cuh"

/* How many pieces of W values a thread keeps in registers. */
template <int W> constexpr int held_pieces = W == 1 ? 4 : 16 / W;

constexpr int NORM_BACK_THREADS = 256; // per block: BACK_THREADS of norm.c

template <typename T> struct norm_args {
    T *y, *sum;
    float *rstd;
    const T *x, *delta;
    const float *gain;
    int cols;
    float epsilon;
};

/* The piece of x at offset `at`; with delta, x + delta, which is also stored. The norm then uses
 * the rounded sum, so that the backward pass sees the same values. */
template <typename T, int W>
__device__ __forceinline__ lanes<T, W> norm_input(const norm_args<T> &a, int64_t at) {
    const lanes<T, W> x = load<T, W>(a.x + at);
    if (a.delta == nullptr) return x;
    float both[W], delta[W];
    widen(both, x);
    take<T, W>(delta, a.delta + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        both[i] += delta[i];
    const lanes<T, W> sum = narrow<T, W>(both);
    *(lanes<T, W> *)(a.sum + at) = sum;
    return sum;
}

template <typename T, int W>
__device__ __forceinline__ void norm_output(const norm_args<T> &a, int64_t at, int c,
                                            lanes<T, W> in, float scale) {
    float v[W], gain[W];
    widen(v, in);
    if (a.gain != nullptr) take_floats<W>(gain, a.gain + c);
#pragma unroll
    for (int i = 0; i < W; i++)
        v[i] = v[i] * scale * (a.gain != nullptr ? gain[i] : 1.0f);
    put<T, W>(a.y + at, v);
}

template <typename T, int W>
__device__ __forceinline__ float norm_squares(float sum, lanes<T, W> in) {
    float v[W];
    widen(v, in);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += v[i] * v[i];
    return sum;
}

template <typename T, int W> __device__ __forceinline__ void norm_row(const norm_args<T> &a) {
    __shared__ float shared[32];
    constexpr int PIECES = held_pieces<W>;
    const int64_t row = blockIdx.x, first = row * a.cols;
    const int step = (int)blockDim.x * W, own = (int)threadIdx.x * W;
    lanes<T, W> held[PIECES];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        if (j * step + own >= a.cols) continue;
        held[j] = norm_input<T, W>(a, first + j * step + own);
        squares = norm_squares<T, W>(squares, held[j]);
    }
    for (int c = PIECES * step + own; c < a.cols; c += step)
        squares = norm_squares<T, W>(squares, norm_input<T, W>(a, first + c));
    const float scale = 1.0f / sqrtf(block_sum(squares, shared) / (float)a.cols + a.epsilon);
    if (threadIdx.x == 0) a.rstd[row] = scale;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int c = j * step + own;
        if (c < a.cols) norm_output<T, W>(a, first + c, c, held[j], scale);
    }
    const T *again = a.delta != nullptr ? a.sum : a.x;
    for (int c = PIECES * step + own; c < a.cols; c += step)
        norm_output<T, W>(a, first + c, c, load<T, W>(again + first + c), scale);
}

template <typename T> __device__ __forceinline__ void norm(const norm_args<T> &a) {
    if (a.cols % wide<T> == 0 && at16(a.y, a.sum, a.x, a.delta, a.gain))
        norm_row<T, wide<T>>(a);
    else
        norm_row<T, 1>(a);
}

/* How many pieces a thread of a team keeps: of each of three tensors, and of d_gain. */
template <int W> constexpr int team_pieces = 4;

template <typename T> struct norm_back_args {
    T *d_x;
    float *partial; // [blocks x cols], partial sums of d_gain; NULL without gain
    const T *d_y, *x;
    const float *gain, *rstd;
    int64_t rows;
    int cols;
    int team; // threads per row: a power-of-two number of warps
};

/* One piece of a row: returns its part of the dot product of d_y * gain with x, and adds to d_gain.
 */
template <typename T, int W>
__device__ __forceinline__ float norm_dot(const norm_back_args<T> &a, float d_gain[W],
                                          lanes<T, W> d_in, lanes<T, W> x_in, int c, float scale) {
    float d[W], x[W], gain[W], dot = 0;
    widen(d, d_in);
    widen(x, x_in);
    if (a.gain != nullptr) take_floats<W>(gain, a.gain + c);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float both = d[i] * x[i];
        d_gain[i] += both * scale;
        dot += both * (a.gain != nullptr ? gain[i] : 1.0f);
    }
    return dot;
}

/* A row of the gradient, d_x += scale * (d_y * gain - x * shift), and its offset. */
struct norm_line {
    int64_t first;
    float scale, shift;
};

template <typename T, int W>
__device__ __forceinline__ void norm_add(const norm_back_args<T> &a, const norm_line &line, int c,
                                         lanes<T, W> to_in, lanes<T, W> d_in, lanes<T, W> x_in) {
    float d[W], x[W], gain[W], to[W];
    widen(d, d_in);
    widen(x, x_in);
    widen(to, to_in);
    if (a.gain != nullptr) take_floats<W>(gain, a.gain + c);
#pragma unroll
    for (int i = 0; i < W; i++)
        to[i] += line.scale * (d[i] * (a.gain != nullptr ? gain[i] : 1.0f) - x[i] * line.shift);
    put<T, W>(a.d_x + line.first + c, to);
}

/* The part of a very wide row that registers do not hold. Its team is the whole block, so the
 * block's row of `partial` can accumulate d_gain. */
template <typename T, int W>
__device__ __forceinline__ float norm_dot_rest(const norm_back_args<T> &a, int64_t row, int from,
                                               int step, float scale) {
    const bool is_first = row == blockIdx.x;
    float *sums = a.partial + (int64_t)blockIdx.x * a.cols;
    float dot = 0;
#pragma unroll 1
    for (int c = from; c < a.cols; c += step) {
        const int64_t at = row * a.cols + c;
        float d_gain[W] = {};
        if (a.gain != nullptr && !is_first) take_floats<W>(d_gain, sums + c);
        dot += norm_dot<T, W>(a, d_gain, load<T, W>(a.d_y + at), load<T, W>(a.x + at), c, scale);
        if (a.gain != nullptr) put_floats<W>(sums + c, d_gain);
    }
    return dot;
}

/* A barrier for one team, with a barrier number of its own: teams do not wait for each other. A
 * block has at most eight teams, and barrier 0 is __syncthreads. */
__device__ __forceinline__ void meet_team(int team) {
#if defined(__CUDA_ARCH__)
    asm volatile("bar.sync %0, %1;" ::"r"(1 + (int)threadIdx.x / team), "r"(team) : "memory");
#else
    __syncthreads();
#endif
}

/* The sum over a team, in every thread of it, warps in order. */
__device__ __forceinline__ float team_sum(float value, int team, float *shared) {
    value = warp_sum(value);
    if (team == 32) return value;
    const int warp = (int)threadIdx.x / 32, first = warp / (team / 32) * (team / 32);
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    meet_team(team);
    float sum = 0;
    for (int i = 0; i < team / 32; i++)
        sum += shared[first + i];
    meet_team(team);
    return sum;
}

/* One row of the gradient by one team. All loads are issued before the first use. */
template <typename T, int W>
__device__ __forceinline__ void norm_back_row(const norm_back_args<T> &a, int64_t row,
                                              float d_gain[team_pieces<W>][W], float *shared) {
    constexpr int PIECES = team_pieces<W>;
    const int step = a.team * W, own = (int)threadIdx.x % a.team * W;
    const int cols = row < a.rows ? a.cols : 0; // a team without a row only takes part in barriers
    const int64_t first = row * a.cols;
    const float scale = row < a.rows ? a.rstd[row] : 0.0f;
    lanes<T, W> d[PIECES], x[PIECES], to[PIECES];
    float dot = 0;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        if (j * step + own >= cols) continue;
        d[j] = load<T, W>(a.d_y + first + j * step + own);
        x[j] = load<T, W>(a.x + first + j * step + own);
        to[j] = load<T, W>(a.d_x + first + j * step + own);
    }
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int c = j * step + own;
        if (c < cols) dot += norm_dot<T, W>(a, d_gain[j], d[j], x[j], c, scale);
    }
    if (PIECES * step < cols) dot += norm_dot_rest<T, W>(a, row, PIECES * step + own, step, scale);
    const float shift = team_sum(dot, a.team, shared) * scale * scale / (float)a.cols;
    const norm_line line = {first, scale, shift};
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
        const int c = j * step + own;
        if (c < cols) norm_add<T, W>(a, line, c, to[j], d[j], x[j]);
    }
#pragma unroll 1
    for (int c = PIECES * step + own; c < cols; c += step) {
        const int64_t at = first + c;
        norm_add<T, W>(a, line, c, load<T, W>(a.d_x + at), load<T, W>(a.d_y + at),
                       load<T, W>(a.x + at));
    }
}

/* Writes the block's partial sums of d_gain: those of its teams, added from the first team. */
template <typename T, int W>
__device__ __forceinline__ void put_d_gain(const norm_back_args<T> &a,
                                           const float d_gain[team_pieces<W>][W]) {
    alignas(16) __shared__ float sums[NORM_BACK_THREADS][W];
    const int step = a.team * W, own = (int)threadIdx.x % a.team * W;
    float *to = a.partial + (int64_t)blockIdx.x * a.cols;
#pragma unroll
    for (int j = 0; j < team_pieces<W>; j++) {
        const int c = j * step + own;
        if (j * step >= a.cols) break;
        put_floats<W>(sums[threadIdx.x], d_gain[j]);
        __syncthreads();
        if ((int)threadIdx.x < a.team && c < a.cols) {
            float all[W] = {};
#pragma unroll 1
            for (int t = (int)threadIdx.x; t < (int)blockDim.x; t += a.team)
#pragma unroll
                for (int i = 0; i < W; i++)
                    all[i] += sums[t][i];
            put_floats<W>(to + c, all);
        }
        __syncthreads();
    }
}

/* The teams of a block take neighbouring rows, then advance by the teams of the whole grid. */
template <typename T, int W>
__device__ __forceinline__ void norm_back_rows(const norm_back_args<T> &a) {
    __shared__ float shared[32];
    const int n_teams = (int)blockDim.x / a.team;
    float d_gain[team_pieces<W>][W] = {};
#pragma unroll 1
    for (int64_t base = (int64_t)blockIdx.x * n_teams; base < a.rows;
         base += (int64_t)gridDim.x * n_teams)
        norm_back_row<T, W>(a, base + (int)threadIdx.x / a.team, d_gain, shared);
    if (a.gain != nullptr) put_d_gain<T, W>(a, d_gain);
}

template <typename T> __device__ __forceinline__ void norm_back(const norm_back_args<T> &a) {
    if (a.cols % wide<T> == 0 && at16(a.d_x, a.d_y, a.x, a.gain, a.partial))
        norm_back_rows<T, wide<T>>(a);
    else
        norm_back_rows<T, 1>(a);
}

#define NORMS(T, suffix)                                                                           \
    extern "C" __global__ void __launch_bounds__(512)                                              \
        rmsnorm_##suffix(T *y, T *sum, float *rstd, const T *x, const T *delta, const float *gain, \
                         int cols, float epsilon) {                                                \
        norm<T>({y, sum, rstd, x, delta, gain, cols, epsilon});                                    \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(NORM_BACK_THREADS, 2)                             \
        rmsnorm_back_##suffix(T *d_x, float *partial, const T *d_y, const T *x, const float *gain, \
                              const float *rstd, int64_t rows, int cols, int team) {               \
        norm_back<T>({d_x, partial, d_y, x, gain, rstd, rows, cols, team});                        \
    }

NORMS(float, f32)
NORMS(bf16, bf16)

/* The sum of column c of part [rows x cols], in thread row 0 and always in the same order: each of
 * 32 rows of threads sums every 32nd row, then their sums are added from the first. */
__device__ __forceinline__ float sum_column(const float *part, int64_t rows, int64_t cols,
                                            int64_t c) {
    __shared__ float sums[32][32];
    float sum = 0;
#pragma unroll 8
    for (int64_t n = threadIdx.y; n < (c < cols ? rows : 0); n += 32)
        sum += part[n * cols + c];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; i < 32 && threadIdx.y == 0; i++)
        sum += sums[i][threadIdx.x];
    return sum;
}

extern "C" __global__ void __launch_bounds__(1024)
    add_columns(float *total, const float *part, int64_t rows, int64_t cols) {
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const float sum = sum_column(part, rows, cols, c);
    if (threadIdx.y == 0 && c < cols) total[c] += sum;
}

/* The first n_first columns belong to another tensor than those after them. */
extern "C" __global__ void __launch_bounds__(1024)
    add_columns_of_two(float *first, float *second, const float *part, int64_t rows, int64_t cols,
                       int64_t n_first) {
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const float sum = sum_column(part, rows, cols, c);
    if (threadIdx.y != 0 || c >= cols) return;
    (c < n_first ? first + c : second + c - n_first)[0] += sum;
}
