/* ref_groups.c - updates of several matrices of one shape, one by one and from other kernels: this
 * is their definition, and keeps a cpu as busy as anything faster could. */
#include "backend/cpu/cpu.h"

/* y = beta y + alpha factor x: a product with a matrix of one value. */
static strait_err add_scaled(struct strait_stream *s, strait_tensor y, strait_tensor x,
                             strait_tensor factor, strait_matmul_params params) {
    const int64_t n = strait_cpu_count(y);
    return s->backend->kernels->matmul(s, strait_tensor_reshape(y, 1, n),
                                       strait_tensor_rows(factor, 0, 1),
                                       strait_tensor_reshape(x, 1, n), params);
}

static strait_err momentum(struct strait_stream *s, strait_tensor u, strait_tensor m,
                           strait_tensor grad, strait_tensor scale, float b) {
    const struct strait_kernels *k = s->backend->kernels;
    const strait_matmul_params average = {.alpha = 1 - b, .beta = b};
    assert(strait_cpu_same_shape(u, m) && strait_cpu_same_shape(grad, m));
    if (strait_cpu_has_nonfinite_norm(scale)) return k->fill(s, u, 0);
    STRAIT_TRY(add_scaled(s, m, grad, scale, average));
    STRAIT_TRY(k->cast(s, u, m));
    return add_scaled(s, u, grad, scale, average);
}

/* Matrix i of a group of n. */
static strait_tensor part_of(strait_tensor group, int64_t n, int64_t i) {
    const int64_t rows = group.rows / n;
    return strait_tensor_rows(group, i * rows, rows);
}

static strait_err normalise(struct strait_stream *s, strait_tensor x, strait_tensor totals,
                            float epsilon) {
    const int64_t n = strait_cpu_count(totals);
    for (int64_t i = 0; i < n; i++)
        STRAIT_TRY(s->backend->kernels->normalise(s, part_of(x, n, i), part_of(x, n, i),
                                                  part_of(totals, n, i), epsilon));
    return STRAIT_OK;
}

static strait_err multiply(struct strait_stream *s, strait_tensor y, strait_tensor c,
                           strait_tensor a, strait_tensor b, int n, strait_matmul_params params) {
    const struct strait_kernels *k = s->backend->kernels;
    assert(params.beta == 0.0f || strait_cpu_same_shape(c, y));
    for (int i = 0; i < n; i++) {
        const strait_tensor to = part_of(y, n, i);
        if (params.beta != 0.0f && c.data != y.data) STRAIT_TRY(k->cast(s, to, part_of(c, n, i)));
        STRAIT_TRY(k->matmul(s, to, part_of(a, n, i), part_of(b, n, i), params));
    }
    return STRAIT_OK;
}

static strait_err apply(struct strait_stream *s, strait_tensor weight, strait_tensor copy,
                        strait_tensor u, strait_tensor scale, float keep, float rate) {
    float value = 1;
    const strait_tensor one = {&value, STRAIT_F32, 1, 1};
    assert(strait_cpu_same_shape(weight, u));
    if (strait_cpu_has_nonfinite_norm(scale)) return STRAIT_OK;
    STRAIT_TRY(add_scaled(s, weight, u, one, (strait_matmul_params){.alpha = -rate, .beta = keep}));
    return copy.data != NULL ? s->backend->kernels->cast(s, copy, weight) : STRAIT_OK;
}

void strait_ref_groups(struct strait_kernel_set *set) {
    set->groups.momentum = momentum;
    set->groups.normalise = normalise;
    set->groups.multiply = multiply;
    set->groups.apply = apply;
}
