/* blas_run.c - runs one product with cublasLt, and times its algorithms. */
#include "backend/cuda/blas.h"
#include "base/clock.h"

enum {
    TIMED_RUNS = 10 // per proposal, after one warm-up
};

/* Another proposal replaces the first when it takes less than this fraction of its time: noise must
 * not decide. */
static const double clearly = 0.97;

/* a and b change places, as everywhere (blas.c). */
static cublasStatus_t set_scales(const struct strait_cuda_blas *blas,
                                 const struct strait_cuda_plan *plan, const float *of_a,
                                 const float *of_b) {
    const cublasStatus_t status = blas->table.cublasLtMatmulDescSetAttribute(
        (cublasLtMatmulDesc_t)&plan->params, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_b,
        sizeof of_b);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return blas->table.cublasLtMatmulDescSetAttribute((cublasLtMatmulDesc_t)&plan->params,
                                                      CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_a,
                                                      sizeof of_a);
}

/* Matrices of a group follow each other in memory. */
static cublasStatus_t set_count(const struct strait_cuda_blas *blas,
                                const struct strait_cuda_plan *plan, int32_t n) {
    const int64_t *p = plan->product.at;
    const int64_t m = p[STRAIT_CUDA_M], cols = p[STRAIT_CUDA_N], k = p[STRAIT_CUDA_K];
    const struct {
        const cublasLtMatrixLayoutOpaque_t *layout;
        int64_t stride;
    } each[] = {{&plan->a, m * k}, {&plan->b, k * cols}, {&plan->y, m * cols}};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof each / sizeof *each && status == CUBLAS_STATUS_SUCCESS; i++) {
        const cublasLtMatrixLayout_t layout = (cublasLtMatrixLayout_t)each[i].layout;
        status = blas->table.cublasLtMatrixLayoutSetAttribute(
            layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
        if (status == CUBLAS_STATUS_SUCCESS)
            status = blas->table.cublasLtMatrixLayoutSetAttribute(
                layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &each[i].stride,
                sizeof each[i].stride);
    }
    return status;
}

/* A plan serves many calls: it is told again each time, which only writes into host memory. */
cublasStatus_t strait_cuda_blas_set_call(const struct strait_cuda_blas *blas,
                                         const struct strait_cuda_plan *plan,
                                         strait_cuda_factors f) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (f.scales[0] != NULL) status = set_scales(blas, plan, f.scales[0], f.scales[1]);
    if (status == CUBLAS_STATUS_SUCCESS &&
        (plan->product.at[STRAIT_CUDA_ADDS] & STRAIT_CUDA_IS_MANY) != 0)
        status = set_count(blas, plan, f.n);
    return status;
}

strait_err strait_cuda_blas_run(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                const cublasLtMatmulAlgo_t *algorithm, strait_cuda_factors f) {
    const struct strait_cuda_blas *blas = strait_cuda_of(s->backend)->blas;
    CUstream stream = NULL;
    void *space = NULL;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    STRAIT_TRY(strait_cuda_scratch(s, STRAIT_CUDA_BLAS_SPACE, &space));
    STRAIT_TRY(
        strait_cuda_blas_check(s->backend, strait_cuda_blas_set_call(blas, plan, f), "matmul"));
    const void *c = f.c != NULL ? f.c : f.y;
    const cublasStatus_t status = blas->table.cublasLtMatmul(
        blas->handle, (cublasLtMatmulDesc_t)&plan->params, &f.alpha, f.b,
        (cublasLtMatrixLayout_t)&plan->b, f.a, (cublasLtMatrixLayout_t)&plan->a, &f.beta, c,
        (cublasLtMatrixLayout_t)&plan->y, f.y, (cublasLtMatrixLayout_t)&plan->y, algorithm, space,
        STRAIT_CUDA_BLAS_SPACE, stream);
    return strait_cuda_blas_check(s->backend, status, "matmul");
}

/* One run first, since the first use of an algorithm loads its code. */
static strait_err time_one(struct strait_stream *s, const struct strait_cuda_plan *plan,
                           const cublasLtMatmulAlgo_t *algorithm, strait_cuda_factors f,
                           double *out) {
    STRAIT_TRY(strait_cuda_blas_run(s, plan, algorithm, f));
    STRAIT_TRY(s->backend->ops->wait(s));
    const int64_t began = strait_clock_ns();
    for (int i = 0; i < TIMED_RUNS; i++)
        STRAIT_TRY(strait_cuda_blas_run(s, plan, algorithm, f));
    STRAIT_TRY(s->backend->ops->wait(s));
    *out = (double)(strait_clock_ns() - began) / TIMED_RUNS;
    return STRAIT_OK;
}

static strait_err time_all(struct strait_stream *s, const struct strait_cuda_plan *plan,
                           const cublasLtMatmulHeuristicResult_t *proposals, int n,
                           strait_cuda_factors f, int *out) {
    double best = 0;
    *out = 0;
    for (int i = 0; i < n; i++) {
        double ns = 0;
        STRAIT_TRY(time_one(s, plan, &proposals[i].algo, f, &ns));
        if (i > 0 && ns >= best) continue;
        best = i == 0 ? ns * clearly : ns;
        *out = i;
    }
    return STRAIT_OK;
}

strait_err strait_cuda_blas_time(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                 const cublasLtMatmulHeuristicResult_t *proposals, int n,
                                 strait_cuda_factors f, int *out) {
    const int64_t *p = plan->product.at;
    const size_t count = (p[STRAIT_CUDA_ADDS] & STRAIT_CUDA_IS_MANY) != 0 ? (size_t)f.n : 1;
    const size_t bytes = count * (size_t)(p[STRAIT_CUDA_M] * p[STRAIT_CUDA_N]) *
                         strait_dtype_bytes((strait_dtype)p[STRAIT_CUDA_TO]);
    CUdeviceptr spare = 0; // replaces y, to which every timed run would add
    STRAIT_TRY(strait_cuda_alloc(s->backend, bytes, &spare));
    f.y = strait_cuda_pointer(spare);
    const strait_err err = time_all(s, plan, proposals, n, f, out);
    strait_cuda_free(s->backend, spare);
    return err;
}
