/* k_groups.cu - the elementwise parts of Muon: momentum, norm, new weights. Each reads and writes
 * every value once. */
#include "backend/cuda/vector.cuh"

/* The threads of the grid over n values, four at a time where the addresses allow it. */
template <typename F> __device__ __forceinline__ void over_values(int64_t n, bool is_wide, F body) {
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x, even = is_wide ? n - n % 4 : 0;
    for (int64_t i = first * 4; i < even; i += step * 4)
        body.template operator()<4>(i);
    for (int64_t i = even + first; i < n; i += step)
        body.template operator()<1>(i);
}

struct momentum_body {
    float *u, *m;
    const float *grad;
    float factor, b;
    bool is_void; // the norm is non-finite

    template <int W> __device__ __forceinline__ void operator()(int64_t at) const {
        float old[W], g[W], look[W];
        take<float, W>(old, m + at);
        take<float, W>(g, grad + at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            const float part = (1.0f - b) * (g[i] * factor);
            old[i] = b * old[i] + part;
            look[i] = is_void ? 0.0f : b * old[i] + part;
        }
        if (!is_void) put<float, W>(m + at, old);
        put<float, W>(u + at, look);
    }
};

extern "C" __global__ void __launch_bounds__(256)
    group_momentum(float *u, float *m, const float *grad, const float *scale, float b, int64_t n) {
    over_values(n, at16(u, m, grad), momentum_body{u, m, grad, scale[0], b, !isfinite(scale[1])});
}

struct scale_body {
    float *x;
    float factor;

    template <int W> __device__ __forceinline__ void operator()(int64_t at) const {
        float v[W];
        take<float, W>(v, x + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] *= factor;
        put<float, W>(x + at, v);
    }
};

/* blockIdx.y is the matrix. */
extern "C" __global__ void __launch_bounds__(256)
    group_normalise(float *x, const float *totals, int64_t each, float epsilon) {
    float *own = x + (int64_t)blockIdx.y * each;
    over_values(each, at16(own), scale_body{own, 1.0f / (sqrtf(totals[blockIdx.y]) + epsilon)});
}

struct apply_body {
    float *w;
    uint16_t *copy;
    const float *u;
    float keep, rate;

    template <int W> __device__ __forceinline__ void operator()(int64_t at) const {
        float v[W], less[W];
        take<float, W>(v, w + at);
        take<float, W>(less, u + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = keep * v[i] - rate * less[i];
        put<float, W>(w + at, v);
        if (copy == nullptr) return;
        if constexpr (W == 1)
            copy[at] = (uint16_t)bf16_bits(v[0]);
        else
            *(uint2 *)(copy + at) = make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
    }
};

extern "C" __global__ void __launch_bounds__(256)
    group_apply(float *w, uint16_t *copy, const float *u, const float *scale, float keep,
                float rate, int64_t n) {
    if (!isfinite(scale[1])) return;
    over_values(n, at16(w, copy, u), apply_body{w, copy, u, keep, rate});
}
