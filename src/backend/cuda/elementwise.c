/* elementwise.c - fill, cast, add, axpy, lerp. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/grid.h"

#include <string.h>

/* The driver's memset sets whole words of 16 or 32 bits: no kernel is needed. */
static strait_err fill(struct strait_stream *s, strait_tensor y, float value) {
    const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
    const size_t n = (size_t)strait_cuda_count(y);
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)y.data;
    CUstream stream = NULL;
    if (n == 0) return STRAIT_OK;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (y.dtype == STRAIT_F32)
        return strait_cuda_check(s->backend, driver->cuMemsetD32Async(to, bits, n, stream), "fill");
    assert(y.dtype == STRAIT_BF16);
    /* Rounded as cast rounds: half to even, and NaN stays NaN. */
    const int is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t half = is_nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return strait_cuda_check(s->backend,
                             driver->cuMemsetD16Async(to, (unsigned short)half, n, stream), "fill");
}

/* The driver's copy is as fast as a kernel and needs no launch configuration. */
static strait_err copy(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    CUstream stream = NULL;
    const size_t bytes = strait_tensor_bytes(x);
    if (bytes == 0 || y.data == x.data) return STRAIT_OK;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    const CUresult result = strait_cuda_of(s->backend)
                                ->driver->cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)y.data,
                                                               (CUdeviceptr)(uintptr_t)x.data,
                                                               bytes, stream);
    return strait_cuda_check(s->backend, result, "cast");
}

/* The two conversions are separate kernels; equal types are copied. */
static strait_err cast(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    assert(strait_cuda_same_shape(y, x));
    if (y.dtype == x.dtype) return copy(s, y, x);
    const int narrows = y.dtype == STRAIT_BF16 && x.dtype == STRAIT_F32;
    if (!narrows && !(y.dtype == STRAIT_F32 && x.dtype == STRAIT_BF16))
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "cast on cuda: only f32 and bf16 convert into each other");
    int64_t n = strait_cuda_count(x);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, n);
    return strait_cuda_launch(s, narrows ? "cast_f32_bf16" : "cast_bf16_f32",
                              strait_cuda_each(s, n), args);
}

/* y may be a or b: each thread reads its values before it writes. */
static strait_err add(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b) {
    assert(strait_cuda_same_shape(y, a) && strait_cuda_same_shape(y, b));
    assert(y.dtype == a.dtype && y.dtype == b.dtype);
    int64_t n = strait_cuda_count(y);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, a.data, b.data, n);
    return strait_cuda_launch(s, STRAIT_CUDA_OF(y.dtype, "add"), strait_cuda_each(s, n), args);
}

/* For kernels y = f(y, x, factor). */
static strait_err combine(struct strait_stream *s, const char *kernel, strait_tensor y,
                          strait_tensor x, float factor) {
    assert(strait_cuda_same_shape(y, x) && y.dtype == x.dtype);
    int64_t n = strait_cuda_count(y);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(y.data, x.data, n, factor);
    return strait_cuda_launch(s, kernel, strait_cuda_each(s, n), args);
}

static strait_err axpy(struct strait_stream *s, strait_tensor y, float alpha, strait_tensor x) {
    return combine(s, STRAIT_CUDA_OF(y.dtype, "axpy"), y, x, alpha);
}

static strait_err lerp(struct strait_stream *s, strait_tensor y, strait_tensor x, float t) {
    return combine(s, STRAIT_CUDA_OF(y.dtype, "lerp"), y, x, t);
}

void strait_cuda_elementwise(struct strait_kernel_set *set) {
    set->base.fill = fill;
    set->base.cast = cast;
    set->base.add = add;
    set->base.axpy = axpy;
    set->base.lerp = lerp;
}
