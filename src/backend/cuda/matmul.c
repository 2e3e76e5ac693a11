/* matmul.c - matrix products by cublasLt; by a plain kernel where it has no algorithm. */
#include "backend/cuda/blas.h"
#include "backend/cuda/k_matmul.h"

static uint32_t alignment(strait_tensor t) {
    uint32_t bytes = STRAIT_CUDA_BLAS_ALIGN;
    while ((uintptr_t)t.data % bytes != 0)
        bytes /= 2;
    return bytes;
}

static strait_cuda_product product_of(strait_tensor y, strait_tensor a, strait_tensor b,
                                      strait_matmul_how how) {
    const strait_cuda_product p = {.m = y.rows,
                                   .n = y.cols,
                                   .k = how.transpose_a ? a.rows : a.cols,
                                   .from = a.dtype,
                                   .to = y.dtype,
                                   .transpose_a = how.transpose_a != 0,
                                   .transpose_b = how.transpose_b != 0,
                                   .adds = how.beta != 0.0f,
                                   .align_a = alignment(a),
                                   .align_b = alignment(b),
                                   .align_y = alignment(y)};
    assert(a.dtype == b.dtype);
    assert(p.k == (how.transpose_b ? b.cols : b.rows) && p.k > 0);
    assert(p.m == (how.transpose_a ? a.cols : a.rows));
    assert(p.n == (how.transpose_b ? b.rows : b.cols));
    return p;
}

static strait_err multiply_plainly(struct strait_stream *s, strait_tensor y, strait_tensor a,
                                   strait_tensor b, strait_matmul_how how) {
    strait_cuda_matmul_args args = {.y = y.data,
                                    .a = a.data,
                                    .b = b.data,
                                    .m = y.rows,
                                    .n = y.cols,
                                    .k = how.transpose_a ? a.rows : a.cols,
                                    .a_row = how.transpose_a ? 1 : a.cols,
                                    .a_col = how.transpose_a ? a.cols : 1,
                                    .b_row = how.transpose_b ? 1 : b.cols,
                                    .b_col = how.transpose_b ? b.cols : 1,
                                    .alpha = how.alpha,
                                    .beta = how.beta};
    const char *kernel = a.dtype == STRAIT_F32 ? "matmul_f32_f32"
                                               : STRAIT_CUDA_OF(y.dtype, "matmul_bf16");
    const int64_t tile = STRAIT_CUDA_MATMUL_TILE;
    const strait_cuda_grid grid = {.x = strait_cuda_pieces(y.rows, tile) *
                                        strait_cuda_pieces(y.cols, tile),
                                   .threads = STRAIT_CUDA_MATMUL_TILE * STRAIT_CUDA_MATMUL_TILE};
    return strait_cuda_launch(s, kernel, grid, (void *[]){&args});
}

static strait_err multiply(struct strait_stream *s, strait_tensor y, strait_tensor a,
                           strait_tensor b, strait_matmul_how how) {
    const struct strait_cuda_blas *blas = strait_cuda_of(s->backend)->blas;
    const strait_cuda_product product = product_of(y, a, b, how);
    const struct strait_cuda_plan *plan = NULL;
    CUstream stream = NULL;
    void *space = NULL;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    STRAIT_TRY(strait_cuda_blas_plan(s->backend, &product, &plan));
    if (plan->is_plain) return multiply_plainly(s, y, a, b, how);
    STRAIT_TRY(strait_cuda_scratch(s, STRAIT_CUDA_BLAS_SPACE, &space));
    const cublasStatus_t status = blas->table.cublasLtMatmul(
        blas->handle, (cublasLtMatmulDesc_t)&plan->how, &how.alpha, b.data,
        (cublasLtMatrixLayout_t)&plan->b, a.data, (cublasLtMatrixLayout_t)&plan->a, &how.beta,
        y.data, (cublasLtMatrixLayout_t)&plan->y, y.data, (cublasLtMatrixLayout_t)&plan->y,
        &plan->algorithm, space, STRAIT_CUDA_BLAS_SPACE, stream);
    return strait_cuda_blas_check(s->backend, status, "matmul");
}

/* cublasLt makes no bf16 of f32 factors: the product is made in f32, then rounded. */
static strait_err multiply_and_round(struct strait_stream *s, strait_tensor y, strait_tensor a,
                                     strait_tensor b, strait_matmul_how how) {
    const struct strait_kernels *k = s->backend->kernels;
    strait_tensor wide = {.dtype = STRAIT_F32, .rows = y.rows, .cols = y.cols};
    void *space = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, STRAIT_CUDA_BLAS_SPACE + strait_tensor_bytes(wide), &space));
    wide.data = (char *)space + STRAIT_CUDA_BLAS_SPACE; // the workspace lies before it
    if (how.beta != 0.0f) STRAIT_TRY(k->cast(s, wide, y));
    STRAIT_TRY(multiply(s, wide, a, b, how));
    return k->cast(s, y, wide);
}

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_how how) {
    if (strait_cuda_count(y) == 0) return STRAIT_OK;
    if (a.dtype == STRAIT_F32 && y.dtype == STRAIT_BF16) return multiply_and_round(s, y, a, b, how);
    return multiply(s, y, a, b, how);
}

void strait_cuda_matmul(struct strait_kernels *k) {
    k->matmul = matmul;
}
