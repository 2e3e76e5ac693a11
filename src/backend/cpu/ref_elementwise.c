/* ref_elementwise.c - fill, cast, add, axpy, lerp. */
#include "backend/cpu/cpu.h"

#include <string.h>

/* On the host only f32 tensors are computed with. */
static strait_err fill(struct strait_stream *s, strait_tensor y, float value) {
    (void)s;
    float *to = strait_cpu_f32(y);
    for (int64_t i = 0; i < strait_cpu_count(y); i++)
        to[i] = value;
    return STRAIT_OK;
}

static strait_err cast(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    const int64_t n = strait_cpu_count(x);
    if (y.dtype == x.dtype) {
        memcpy(y.data, x.data, strait_tensor_bytes(x));
    } else if ((y.dtype == STRAIT_BF16 && x.dtype == STRAIT_F32) ||
               (y.dtype == STRAIT_F32 && x.dtype == STRAIT_BF16)) {
        for (int64_t i = 0; i < n; i++)
            strait_cpu_put(y, i, strait_cpu_get(x, i));
    } else {
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "cast on cpu: only f32 and bf16 convert into each other");
    }
    return STRAIT_OK;
}

/* y may be a or b: every value is read before it is written. */
static strait_err add(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b) {
    (void)s;
    assert(strait_cpu_same_shape(y, a) && strait_cpu_same_shape(y, b));
    float *to = strait_cpu_f32(y);
    const float *left = strait_cpu_f32(a), *right = strait_cpu_f32(b);
    for (int64_t i = 0; i < strait_cpu_count(y); i++)
        to[i] = left[i] + right[i];
    return STRAIT_OK;
}

static strait_err axpy(struct strait_stream *s, strait_tensor y, float alpha, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    float *to = strait_cpu_f32(y);
    const float *from = strait_cpu_f32(x);
    for (int64_t i = 0; i < strait_cpu_count(y); i++)
        to[i] += alpha * from[i];
    return STRAIT_OK;
}

/* This form leaves y unchanged, bit for bit, where x equals y. */
static strait_err lerp(struct strait_stream *s, strait_tensor y, strait_tensor x, float t) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    float *to = strait_cpu_f32(y);
    const float *from = strait_cpu_f32(x);
    for (int64_t i = 0; i < strait_cpu_count(y); i++)
        to[i] += t * (from[i] - to[i]);
    return STRAIT_OK;
}

void strait_ref_elementwise(struct strait_kernel_set *set) {
    set->base.fill = fill;
    set->base.cast = cast;
    set->base.add = add;
    set->base.axpy = axpy;
    set->base.lerp = lerp;
}
