/* k_mlp.cu - activation functions: gated silu (swiglu), squared relu, relu and silu. */
#include "backend/cuda/vector.cuh"

/* Computed in float and rounded once, whatever T is: the reference loops do the same. */
template <typename T, int W>
__device__ __forceinline__ void swiglu(T *y, const T *gate_up, int64_t row, int64_t c,
                                       int64_t cols) {
    float gate[W], up[W];
    take<T, W>(gate, gate_up + row * 2 * cols + c);
    take<T, W>(up, gate_up + (row * 2 + 1) * cols + c);
#pragma unroll
    for (int i = 0; i < W; i++)
        up[i] *= gate[i] * sigmoid(gate[i]);
    put<T, W>(y + row * cols + c, up);
}

/* A thread writes only what it has read itself, so that outputs may replace inputs. y, if present,
 * receives the output of swiglu with the same bits. */
template <typename T, int W>
__device__ __forceinline__ void swiglu_back(T *d_gate_up, T *y, const T *d_y, const T *gate_up,
                                            int64_t row, int64_t c, int64_t cols) {
    const int64_t at = row * 2 * cols + c;
    float gate[W], up[W], d[W], computed[W];
    take<T, W>(gate, gate_up + at);
    take<T, W>(up, gate_up + at + cols);
    take<T, W>(d, d_y + row * cols + c);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float g = gate[i], open = sigmoid(g);
        computed[i] = up[i] * (g * open);
        gate[i] = d[i] * up[i] * open * (1.0f + g * (1.0f - open));
        up[i] = d[i] * g * open;
    }
    put<T, W>(d_gate_up + at, gate);
    put<T, W>(d_gate_up + at + cols, up);
    if (y != nullptr) put<T, W>(y + row * cols + c, computed);
}

/* v < 0 is false for NaN, which therefore passes through, here and in relu. */
template <typename T, int W> __device__ __forceinline__ void relu2(T *y, const T *x, int64_t at) {
    float v[W];
    take<T, W>(v, x + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        v[i] = v[i] < 0.0f ? 0.0f : v[i] * v[i];
    put<T, W>(y + at, v);
}

/* At 0 the gradient of the square is 0 from both sides; no convention is needed. */
template <typename T, int W>
__device__ __forceinline__ void relu2_back(T *d_x, T *y, const T *d_y, const T *x, int64_t at) {
    float v[W], d[W];
    take<T, W>(v, x + at);
    take<T, W>(d, d_y + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        d[i] = v[i] < 0.0f ? 0.0f : 2.0f * v[i] * d[i];
        v[i] = v[i] < 0.0f ? 0.0f : v[i] * v[i];
    }
    put<T, W>(d_x + at, d);
    if (y != nullptr) put<T, W>(y + at, v);
}

/* Values are independent, so pieces of any width give the same bits. */
template <typename T, int W> __device__ __forceinline__ void relu(T *y, const T *x, int64_t at) {
    float v[W];
    take<T, W>(v, x + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        v[i] = v[i] < 0.0f ? 0.0f : v[i];
    put<T, W>(y + at, v);
}

template <typename T, int W>
__device__ __forceinline__ void relu_back(T *d_x, const T *d_y, const T *x, int64_t at) {
    float v[W], d[W];
    take<T, W>(v, x + at);
    take<T, W>(d, d_y + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        d[i] = v[i] <= 0.0f ? 0.0f : d[i];
    put<T, W>(d_x + at, d);
}

/* The sigmoid of swiglu, so that both gates round alike. */
template <typename T, int W> __device__ __forceinline__ void silu(T *y, const T *x, int64_t at) {
    float v[W];
    take<T, W>(v, x + at);
#pragma unroll
    for (int i = 0; i < W; i++)
        v[i] *= sigmoid(v[i]);
    put<T, W>(y + at, v);
}

template <typename T, int W>
__device__ __forceinline__ void silu_back(T *d_x, const T *d_y, const T *x, int64_t at) {
    float v[W], d[W];
    take<T, W>(v, x + at);
    take<T, W>(d, d_y + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float open = sigmoid(v[i]);
        d[i] *= open * (1.0f + v[i] * (1.0f - open));
    }
    put<T, W>(d_x + at, d);
}

/* CALL uses W, row and c; W is wide where every row is aligned to 16 bytes, else 1. */
#define OVER_ROWS(T, rows, cols, is_aligned, CALL)                           \
    do {                                                                     \
        if ((cols) % wide<T> == 0 && (is_aligned)) {                         \
            constexpr int W = wide<T>;                                       \
            over_rows<W>(rows, cols, [=](int64_t row, int64_t c) { CALL; }); \
        } else {                                                             \
            constexpr int W = 1;                                             \
            over_rows<W>(rows, cols, [=](int64_t row, int64_t c) { CALL; }); \
        }                                                                    \
    } while (0)

/* Kernels for functions of one value, and for their gradients. */
#define ONE_VALUE(T, suffix, name)                                                \
    extern "C" __global__ void __launch_bounds__(256)                             \
        name##_##suffix(T *y, const T *x, int64_t rows, int64_t cols) {           \
        OVER_ROWS(T, rows, cols, at16(y, x), (name<T, W>(y, x, row * cols + c))); \
    }
#define ONE_VALUE_BACK(T, suffix, name)                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                           \
        name##_##suffix(T *d_x, const T *d_y, const T *x, int64_t rows, int64_t cols) {         \
        OVER_ROWS(T, rows, cols, at16(d_x, d_y, x), (name<T, W>(d_x, d_y, x, row * cols + c))); \
    }

#define MLPS(T, suffix)                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        swiglu_##suffix(T *y, const T *gate_up, int64_t rows, int64_t cols) {                     \
        OVER_ROWS(T, rows, cols, at16(y, gate_up), (swiglu<T, W>(y, gate_up, row, c, cols)));     \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) swiglu_back_##suffix(                       \
        T *d_gate_up, T *y, const T *d_y, const T *gate_up, int64_t rows, int64_t cols) {         \
        OVER_ROWS(T, rows, cols, at16(d_gate_up, y, d_y, gate_up),                                \
                  (swiglu_back<T, W>(d_gate_up, y, d_y, gate_up, row, c, cols)));                 \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        relu2_back_##suffix(T *d_x, T *y, const T *d_y, const T *x, int64_t rows, int64_t cols) { \
        OVER_ROWS(T, rows, cols, at16(d_x, y, d_y, x),                                            \
                  (relu2_back<T, W>(d_x, y, d_y, x, row * cols + c)));                            \
    }                                                                                             \
    ONE_VALUE(T, suffix, relu2)                                                                   \
    ONE_VALUE(T, suffix, relu)                                                                    \
    ONE_VALUE(T, suffix, silu)                                                                    \
    ONE_VALUE_BACK(T, suffix, relu_back)                                                          \
    ONE_VALUE_BACK(T, suffix, silu_back)

MLPS(float, f32)
MLPS(bf16, bf16)
