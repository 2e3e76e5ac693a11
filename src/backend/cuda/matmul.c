/* matmul.c - matrix products by cublasLt; by a plain kernel where it has no algorithm. */
#include "backend/cuda/blas.h"
#include "backend/cuda/k_matmul.h"

/* The largest power of two, up to 16, that divides the tensor's address. */
static int64_t alignment(strait_tensor t) {
    int64_t bytes = STRAIT_CUDA_BLAS_ALIGN;
    while ((uintptr_t)t.data % (uintptr_t)bytes != 0)
        bytes /= 2;
    return bytes;
}

/* Everything that cublasLt's choice may depend on is part of the key, also alignments: two calls
 * with the same key then have the same bits. */
static strait_cuda_product product_of(const struct strait_backend *be, strait_tensor y,
                                      strait_tensor a, strait_tensor b,
                                      strait_matmul_params params) {
    const int64_t k = params.transpose_a ? a.rows : a.cols;
    assert(a.dtype == b.dtype);
    assert(k == (params.transpose_b ? b.cols : b.rows) && k > 0);
    assert(y.rows == (params.transpose_a ? a.cols : a.rows));
    assert(y.cols == (params.transpose_b ? b.rows : b.cols));
    const int is_tf32 = a.dtype == STRAIT_F32 && be->precision == STRAIT_BF16 && !params.is_exact;
    return (strait_cuda_product){.at = {[STRAIT_CUDA_M] = y.rows,
                                        [STRAIT_CUDA_N] = y.cols,
                                        [STRAIT_CUDA_K] = k,
                                        [STRAIT_CUDA_FROM] = a.dtype,
                                        [STRAIT_CUDA_TO] = y.dtype,
                                        [STRAIT_CUDA_TF32] = is_tf32,
                                        [STRAIT_CUDA_TRANSPOSE_A] = params.transpose_a != 0,
                                        [STRAIT_CUDA_TRANSPOSE_B] = params.transpose_b != 0,
                                        [STRAIT_CUDA_ADDS] = params.beta != 0.0f,
                                        [STRAIT_CUDA_ALIGN_A] = alignment(a),
                                        [STRAIT_CUDA_ALIGN_B] = alignment(b),
                                        [STRAIT_CUDA_ALIGN_Y] = alignment(y)}};
}

/* Our own kernel, for products that cublasLt rejects (odd sizes or alignments in bf16). */
static strait_err multiply_plainly(struct strait_stream *s, strait_tensor y, strait_tensor a,
                                   strait_tensor b, strait_matmul_params params) {
    strait_cuda_matmul_args args = {.y = y.data,
                                    .a = a.data,
                                    .b = b.data,
                                    .m = y.rows,
                                    .n = y.cols,
                                    .k = params.transpose_a ? a.rows : a.cols,
                                    .a_row = params.transpose_a ? 1 : a.cols,
                                    .a_col = params.transpose_a ? a.cols : 1,
                                    .b_row = params.transpose_b ? 1 : b.cols,
                                    .b_col = params.transpose_b ? b.cols : 1,
                                    .alpha = params.alpha,
                                    .beta = params.beta};
    const char *kernel = a.dtype == STRAIT_F32 ? "matmul_f32_f32"
                                               : STRAIT_CUDA_OF(y.dtype, "matmul_bf16");
    const int64_t tile = STRAIT_CUDA_MATMUL_TILE;
    const strait_cuda_grid grid = {.x = strait_cuda_pieces(y.rows, tile) *
                                        strait_cuda_pieces(y.cols, tile),
                                   .threads = STRAIT_CUDA_MATMUL_TILE * STRAIT_CUDA_MATMUL_TILE};
    return strait_cuda_launch(s, kernel, grid, STRAIT_CUDA_ARGS(args));
}

/* The plan is found by the product's key; only its first use asks cublasLt. */
static strait_err multiply(struct strait_stream *s, strait_tensor y, strait_tensor a,
                           strait_tensor b, strait_matmul_params params) {
    const strait_cuda_product product = product_of(s->backend, y, a, b, params);
    const strait_cuda_factors factors = {
        .y = y.data, .a = a.data, .b = b.data, .alpha = params.alpha, .beta = params.beta};
    const struct strait_cuda_plan *plan = NULL;
    STRAIT_TRY(strait_cuda_use(s->backend));
    STRAIT_TRY(strait_cuda_blas_plan(s, &product, factors, &plan));
    if (plan->is_plain) return multiply_plainly(s, y, a, b, params);
    return strait_cuda_blas_run(s, plan, &plan->algorithm, factors);
}

/* cublasLt cannot write bf16 from f32 factors: computes in f32, then rounds. */
static strait_err multiply_and_round(struct strait_stream *s, strait_tensor y, strait_tensor a,
                                     strait_tensor b, strait_matmul_params params) {
    const struct strait_kernels *k = s->backend->kernels;
    strait_tensor wide = {.dtype = STRAIT_F32, .rows = y.rows, .cols = y.cols};
    void *space = NULL;
    STRAIT_TRY(strait_cuda_scratch(s, STRAIT_CUDA_BLAS_SPACE + strait_tensor_bytes(wide), &space));
    wide.data = (char *)space + STRAIT_CUDA_BLAS_SPACE; // blas_run takes the scratch from its start
    if (params.beta != 0.0f) STRAIT_TRY(k->cast(s, wide, y));
    STRAIT_TRY(multiply(s, wide, a, b, params));
    return k->cast(s, y, wide);
}

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params) {
    if (strait_cuda_count(y) == 0) return STRAIT_OK;
    if (a.dtype == STRAIT_F32 && y.dtype == STRAIT_BF16)
        return multiply_and_round(s, y, a, b, params);
    return multiply(s, y, a, b, params);
}

void strait_cuda_matmul(struct strait_kernel_set *set) {
    set->base.matmul = matmul;
}
