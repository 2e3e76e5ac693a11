/* recall.cuh - the way back of codes that went to several places. */
#pragma once

#include "backend/cuda/lanes.cuh"
#include "backend/cuda/wire.cuh"
#include "backend/kernels.h"

constexpr int PIECE = 8; // columns of a code that a lane takes

template <typename T> struct recall_gradient {
    float *d_z;
    const T *d_both, *d_normeds;
    const float *z, *rstd;
    int64_t rows, cols, both_cols;
    int64_t first, pitch; // which row of d_normeds is there first, and how far apart they are
    strait_recall_how how;
};

/* Eight values of either type. */
template <typename T> __device__ __forceinline__ void take_piece(float out[PIECE], const T *from) {
#pragma unroll
    for (int i = 0; i < PIECE; i += wide<T>)
        take<T, wide<T>>(out + i, from + i);
}

template <typename T> __device__ __forceinline__ void put_piece(T *to, const float in[PIECE]) {
#pragma unroll
    for (int i = 0; i < PIECE; i += wide<T>)
        put<T, wide<T>>(to + i, in + i);
}

template <typename T> __device__ __forceinline__ void add_piece(float to[PIECE], const T *from) {
    float v[PIECE];
    take_piece<T>(v, from);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        to[i] += v[i];
}

/* What code n receives besides. */
template <typename T>
__device__ __forceinline__ const T *beside_of(const strait_recall_how &how, int64_t n,
                                              int64_t cols) {
    return (const T *)how.beside.data + (n + 1) * how.beside.cols - cols;
}

/* The largest size among what n_lanes lanes have that is fit for the wire; in each of them. */
__device__ __forceinline__ float largest_size(const float v[PIECE], int n_lanes) {
    float largest = 0, bad = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        largest = fmaxf(largest, fabsf(wire_value(v[i], &bad)));
    for (int by = n_lanes / 2; by > 0; by /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, by));
    return largest;
}

/* What code `at` receives from the places it went to, in order of places. All lanes of a warp call;
 * a lane takes 8 columns, n_lanes a code. */
template <typename T>
__device__ __forceinline__ void recall_piece_back(const recall_gradient<T> &g, int64_t at,
                                                  int n_lanes) {
    const bool is_row = at < g.rows;
    const int64_t n = is_row ? at : 0, first = (int64_t)(threadIdx.x % (uint32_t)n_lanes) * PIECE;
    const int64_t left = g.how.seq_len - n % g.how.seq_len;
    const int taps = is_row ? (int)(g.how.taps < left ? g.how.taps : left) : 0;
    float through[PIECE] = {}, direct[PIECE] = {}, z[PIECE], dot = 0;
    take_piece<float>(z, g.z + n * g.cols + first);
    const float scale = g.rstd[n];
#pragma unroll 4
    for (int j = 0; j < taps; j++) {
        add_piece<T>(through, g.d_normeds + (n + j - g.first) * g.pitch + j * g.cols + first);
        add_piece<T>(direct, g.d_both + (n + j) * g.both_cols + j * g.cols + first);
    }
    if (is_row && g.how.beside.data != nullptr)
        add_piece<T>(direct, beside_of<T>(g.how, n, g.cols) + first);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        dot += first + i < g.how.keep ? through[i] * z[i] : 0.0f;
    dot = warp_sum(dot, n_lanes) * scale / (float)g.how.keep;
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        direct[i] = first + i < g.how.keep ? direct[i] + scale * (through[i] - z[i] * scale * dot)
                                           : 0.0f;
    if (is_row) put_piece<float>(g.d_z + n * g.cols + first, direct);
    if (g.how.largest.data == nullptr) return;
    const float largest = largest_size(direct, n_lanes);
    if (is_row && first == 0) ((float *)g.how.largest.data)[n] = largest;
}
