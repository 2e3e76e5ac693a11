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

/* Rounds to nearest, half to even, on the bits. */
static uint16_t bf16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); // NaN: rounding could carry it into infinity
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); // round half to even
}

/* Exact: bf16 is the upper half of an f32. */
static float f32_of(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static strait_err cast(struct strait_stream *s, strait_tensor y, strait_tensor x) {
    (void)s;
    assert(strait_cpu_same_shape(y, x));
    const int64_t n = strait_cpu_count(x);
    if (y.dtype == x.dtype) {
        memcpy(y.data, x.data, strait_tensor_bytes(x));
    } else if (y.dtype == STRAIT_BF16 && x.dtype == STRAIT_F32) {
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y.data)[i] = bf16_of(((const float *)x.data)[i]);
    } else if (y.dtype == STRAIT_F32 && x.dtype == STRAIT_BF16) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y.data)[i] = f32_of(((const uint16_t *)x.data)[i]);
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
