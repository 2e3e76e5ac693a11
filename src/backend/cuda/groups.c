/* groups.c - updates of several matrices of one shape: one strided product of cublasLt for all. */
#include "backend/cuda/blas.h"
#include "backend/cuda/grid.h"

static strait_err momentum(struct strait_stream *s, strait_tensor u, strait_tensor m,
                           strait_tensor grad, strait_tensor scale, float b) {
    assert(strait_cuda_same_shape(u, m) && strait_cuda_same_shape(grad, m));
    assert(u.dtype == STRAIT_F32 && m.dtype == STRAIT_F32 && grad.dtype == STRAIT_F32);
    assert(strait_cuda_count(scale) >= 2);
    int64_t n = strait_cuda_count(m);
    const strait_cuda_args args = STRAIT_CUDA_ARGS(u.data, m.data, grad.data, scale.data, b, n);
    return strait_cuda_launch(s, "group_momentum", strait_cuda_each(s, n), args);
}

static strait_err normalise(struct strait_stream *s, strait_tensor x, strait_tensor totals,
                            float epsilon) {
    const int64_t n = strait_cuda_count(totals);
    assert(x.dtype == STRAIT_F32 && totals.dtype == STRAIT_F32 && strait_cuda_count(x) % n == 0);
    int64_t each = strait_cuda_count(x) / n;
    strait_cuda_grid grid = strait_cuda_each(s, each);
    grid.y = n;
    return strait_cuda_launch(s, "group_normalise", grid,
                              STRAIT_CUDA_ARGS(x.data, totals.data, each, epsilon));
}

/* All matrices of a group begin at addresses of this alignment. */
static int64_t alignment(strait_tensor group, int n) {
    const uintptr_t each = (uintptr_t)(strait_tensor_bytes(group) / (size_t)n);
    int64_t bytes = STRAIT_CUDA_BLAS_ALIGN;
    while ((((uintptr_t)group.data | each) & (uintptr_t)(bytes - 1)) != 0)
        bytes /= 2;
    return bytes;
}

static strait_err multiply(struct strait_stream *s, strait_tensor y, strait_tensor c,
                           strait_tensor a, strait_tensor b, int n, strait_matmul_params params) {
    const int64_t inner = params.transpose_a ? a.rows / n : a.cols;
    assert(y.rows % n == 0 && a.rows % n == 0 && b.rows % n == 0);
    assert(inner == (params.transpose_b ? b.cols : b.rows / n));
    assert(y.dtype == STRAIT_F32 && a.dtype == STRAIT_F32 && b.dtype == STRAIT_F32);
    assert(params.beta == 0.0f || (c.data != NULL && strait_cuda_same_shape(c, y)));
    const strait_tensor added = params.beta != 0.0f ? c : y;
    const int64_t of_y = alignment(y, n), of_c = alignment(added, n);
    const strait_cuda_product product = {
        .at = {[STRAIT_CUDA_M] = y.rows / n,
               [STRAIT_CUDA_N] = y.cols,
               [STRAIT_CUDA_K] = inner,
               [STRAIT_CUDA_FROM] = STRAIT_F32,
               [STRAIT_CUDA_TO] = STRAIT_F32,
               [STRAIT_CUDA_TF32] = s->backend->precision == STRAIT_BF16 && !params.is_exact,
               [STRAIT_CUDA_TRANSPOSE_A] = params.transpose_a != 0,
               [STRAIT_CUDA_TRANSPOSE_B] = params.transpose_b != 0,
               [STRAIT_CUDA_ADDS] = (params.beta != 0.0f) | STRAIT_CUDA_IS_MANY,
               [STRAIT_CUDA_ALIGN_A] = alignment(a, n),
               [STRAIT_CUDA_ALIGN_B] = alignment(b, n),
               [STRAIT_CUDA_ALIGN_Y] = of_y < of_c ? of_y : of_c}};
    const strait_cuda_factors factors = {.y = y.data,
                                         .a = a.data,
                                         .b = b.data,
                                         .c = added.data,
                                         .n = n,
                                         .alpha = params.alpha,
                                         .beta = params.beta};
    const struct strait_cuda_plan *plan = NULL;
    STRAIT_TRY(strait_cuda_use(s->backend));
    STRAIT_TRY(strait_cuda_blas_plan(s, &product, factors, &plan));
    if (plan->is_plain)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "device cuda:%d: cublasLt has no strided product of f32",
                           s->backend->ordinal);
    return strait_cuda_blas_run(s, plan, &plan->algorithm, factors);
}

static strait_err apply(struct strait_stream *s, strait_tensor weight, strait_tensor copy,
                        strait_tensor u, strait_tensor scale, float keep, float rate) {
    assert(strait_cuda_same_shape(weight, u) && weight.dtype == STRAIT_F32);
    assert(copy.data == NULL || copy.dtype == STRAIT_BF16);
    assert(u.dtype == STRAIT_F32 && strait_cuda_count(scale) >= 2);
    int64_t n = strait_cuda_count(weight);
    return strait_cuda_launch(
        s, "group_apply", strait_cuda_each(s, n),
        STRAIT_CUDA_ARGS(weight.data, copy.data, u.data, scale.data, keep, rate, n));
}

void strait_cuda_groups(struct strait_kernel_set *set) {
    set->groups.momentum = momentum;
    set->groups.normalise = normalise;
    set->groups.multiply = multiply;
    set->groups.apply = apply;
}
