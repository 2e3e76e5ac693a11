/* k_codec_basis.cu - orthonormal columns by a Cholesky factorisation of their Gram matrix.
 *
 * With G = q^T q = R^T R, the columns of q R^-1 are those of the Gram-Schmidt method from the first
 * to the last. A pivot too small for its column marks one that depends on earlier columns; it
 * becomes 0. In double precision, and twice: the second time removes what rounding left. */
#include "backend/cuda/vector.cuh"

constexpr int TILE = 16;

/* part [gridDim.z x r x r]: dot products of columns a >= b over the rows of each part, in order. */
extern "C" __global__ void __launch_bounds__(TILE *TILE)
    gram(double *part, const float *q, int64_t rows, int64_t r, int64_t rows_of_part) {
    const int64_t a = (int64_t)blockIdx.x * TILE + threadIdx.x;
    const int64_t b = (int64_t)blockIdx.y * TILE + threadIdx.y;
    const int64_t first = blockIdx.z * rows_of_part;
    const int64_t end = first + rows_of_part < rows ? first + rows_of_part : rows;
    if (a >= r || b > a) return;
    double sum = 0;
    for (int64_t n = first; n < end; n++)
        sum += (double)q[n * r + a] * (double)q[n * r + b];
    part[(blockIdx.z * r + a) * r + b] = sum;
}

/* The sum over a block of whole warps, in every thread, warps in order. */
__device__ __forceinline__ double block_sum(double value, double *shared) {
    const int lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (lane == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    for (int w = 0; w < n_warps; w++)
        sum += shared[w];
    __syncthreads();
    return sum;
}

/* One block. g [r x r] becomes the lower factor L = R^T of the sum of the parts, with a zero column
 * for each that depends on earlier ones; `inverse` becomes the inverse of L, with zero rows
 * likewise. */
extern "C" __global__ void __launch_bounds__(256)
    factor(double *g, double *inverse, const double *part, int64_t r, int64_t n_parts) {
    __shared__ double shared[32];
    for (int64_t i = threadIdx.x; i < r * r; i += blockDim.x) {
        double sum = 0;
        for (int64_t p = 0; p < n_parts && i % r <= i / r; p++)
            sum += part[p * r * r + i];
        g[i] = sum;
        inverse[i] = 0;
    }
    __syncthreads();
    for (int64_t c = 0; c < r; c++) {
        const double before = g[c * r + c];
        double taken = 0;
        for (int64_t b = threadIdx.x; b < c; b += blockDim.x)
            taken += g[c * r + b] * g[c * r + b];
        const double after = before - block_sum(taken, shared);
        const double per_norm = after > before * 1e-10 && after > 1e-60 ? 1 / sqrt(after) : 0;
        for (int64_t a = c + 1 + threadIdx.x; a < r; a += blockDim.x) {
            double dot = g[a * r + c];
            for (int64_t b = 0; b < c; b++)
                dot -= g[a * r + b] * g[c * r + b];
            g[a * r + c] = dot * per_norm;
        }
        /* Row c of the inverse, from the rows above: L[c][c] inv[c][a] = -sum L[c][b] inv[b][a]. */
        for (int64_t a = threadIdx.x; a < c; a += blockDim.x) {
            double dot = 0;
            for (int64_t b = a; b < c; b++)
                dot -= g[c * r + b] * inverse[b * r + a];
            inverse[c * r + a] = dot * per_norm;
        }
        if (threadIdx.x == 0) inverse[c * r + c] = per_norm;
        __syncthreads();
    }
}

constexpr int WIDEST = 1024; // most columns: BASIS_MAX of codec.c

/* q [rows x r] times the transpose of `inverse`, in place; one warp per row. */
extern "C" __global__ void __launch_bounds__(256)
    apply_inverse(float *q, const double *inverse, int64_t rows, int64_t r) {
    __shared__ float shared[8][WIDEST];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t row = (int64_t)blockIdx.x * 8 + warp;
    if (row >= rows) return;
    for (int64_t c = lane; c < r; c += 32)
        shared[warp][c] = q[row * r + c];
    __syncwarp();
    for (int64_t c = lane; c < r; c += 32) {
        double sum = 0;
        for (int64_t b = 0; b <= c; b++)
            sum += (double)shared[warp][b] * inverse[c * r + b];
        q[row * r + c] = (float)sum;
    }
}
