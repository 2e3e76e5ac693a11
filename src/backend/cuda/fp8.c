/* fp8.c - products of factors rounded to 8 bits, by cublasLt.
 *
 * Both factors are rounded anew for each product: nothing is kept between calls, so a result
 * depends on the factors alone, and checkpoints know nothing of scales. cublasLt has such products
 * only of factors whose inner size is contiguous; the others are transposed while they are rounded.
 */
#include "backend/cuda/blas.h"
#include "backend/cuda/k_fp8.h"

/* A factor: where its codes go, and how its tensor lies. */
struct factor {
    strait_tensor from;
    void *codes;
    int which;         // 0 is a, 1 is b
    int is_transposed; // the inner size is not contiguous
    int is_gradient;
};

static strait_err find_largest(struct strait_stream *s, void *head, strait_tensor a,
                               strait_tensor b) {
    const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
    CUstream stream = NULL;
    int64_t n_a = strait_cuda_count(a), n_b = strait_cuda_count(b);
    const int64_t most = (int64_t)strait_cuda_processors(s) * 8;
    const int64_t want = strait_cuda_pieces(n_a > n_b ? n_a : n_b,
                                            (int64_t)STRAIT_CUDA_FP8_THREADS * 8);
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    STRAIT_TRY(strait_cuda_check(s->backend,
                                 driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)head, 0,
                                                         sizeof(strait_cuda_fp8_head), stream),
                                 "zeroing memory"));
    const strait_cuda_grid grid = {
        .x = want < most ? want : most, .y = 2, .threads = STRAIT_CUDA_FP8_THREADS};
    return strait_cuda_launch(s, "fp8_largest", grid,
                              STRAIT_CUDA_ARGS(head, a.data, n_a, b.data, n_b));
}

static strait_err round_factor(struct strait_stream *s, void *head, struct factor *f) {
    int64_t rows = f->from.rows, cols = f->from.cols, n = rows * cols;
    if (!f->is_transposed) {
        const int64_t most = (int64_t)strait_cuda_processors(s) * 16;
        const int64_t want = strait_cuda_pieces(n, (int64_t)STRAIT_CUDA_FP8_THREADS *
                                                       STRAIT_CUDA_FP8_EACH);
        const strait_cuda_grid grid = {.x = want < most ? want : most,
                                       .threads = STRAIT_CUDA_FP8_THREADS};
        return strait_cuda_launch(s, f->is_gradient ? "fp8_rows_e5m2" : "fp8_rows_e4m3", grid,
                                  STRAIT_CUDA_ARGS(f->codes, f->from.data, head, f->which, n));
    }
    const strait_cuda_grid grid = {.x = strait_cuda_pieces(rows, STRAIT_CUDA_FP8_ROWS),
                                   .y = strait_cuda_pieces(cols, STRAIT_CUDA_FP8_COLS),
                                   .threads = STRAIT_CUDA_FP8_THREADS};
    return strait_cuda_launch(s, f->is_gradient ? "fp8_columns_e5m2" : "fp8_columns_e4m3", grid,
                              STRAIT_CUDA_ARGS(f->codes, f->from.data, head, f->which, rows, cols));
}

/* Forward products may keep sums shorter than f32, as is usual; those of gradients may not. */
static strait_err multiply(struct strait_stream *s, strait_tensor y, strait_cuda_factors factors,
                           int64_t inner, int is_gradient) {
    const int64_t align_y = (uintptr_t)y.data % STRAIT_CUDA_BLAS_ALIGN == 0 ? STRAIT_CUDA_BLAS_ALIGN
                                                                            : 4;
    const strait_cuda_product product = {
        .at = {[STRAIT_CUDA_M] = y.rows,
               [STRAIT_CUDA_N] = y.cols,
               [STRAIT_CUDA_K] = inner,
               [STRAIT_CUDA_FROM] = is_gradient ? STRAIT_CUDA_E5M2 : STRAIT_CUDA_E4M3,
               [STRAIT_CUDA_TO] = y.dtype,
               [STRAIT_CUDA_TF32] = !is_gradient,
               [STRAIT_CUDA_TRANSPOSE_A] = 0,
               [STRAIT_CUDA_TRANSPOSE_B] = 1,
               [STRAIT_CUDA_ADDS] = factors.beta != 0.0f,
               [STRAIT_CUDA_ALIGN_A] = STRAIT_CUDA_BLAS_ALIGN,
               [STRAIT_CUDA_ALIGN_B] = STRAIT_CUDA_BLAS_ALIGN,
               [STRAIT_CUDA_ALIGN_Y] = align_y}};
    const struct strait_cuda_plan *plan = NULL;
    STRAIT_TRY(strait_cuda_blas_plan(s, &product, factors, &plan));
    if (plan->is_plain)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "device cuda:%d: cublasLt has no fp8 product of %lld x %lld x %lld: set "
                           "device.precision to bf16",
                           s->backend->ordinal, (long long)y.rows, (long long)inner,
                           (long long)y.cols);
    return strait_cuda_blas_run(s, plan, &plan->algorithm, factors);
}

static strait_err matmul(struct strait_stream *s, strait_tensor y, strait_tensor a, strait_tensor b,
                         strait_matmul_params params, strait_fp8_params fp8) {
    const int64_t inner = params.transpose_a ? a.rows : a.cols;
    assert((y.rows | y.cols | inner) % STRAIT_FP8_MULTIPLE == 0);
    assert(a.dtype == STRAIT_BF16 && b.dtype == STRAIT_BF16);
    assert(((uintptr_t)a.data | (uintptr_t)b.data | (uintptr_t)fp8.space.data) % 16 == 0);
    assert(strait_tensor_bytes(fp8.space) >= (size_t)strait_fp8_space(y.rows, y.cols, inner));
    if (strait_cuda_count(y) == 0) return STRAIT_OK;
    char *head = fp8.space.data, *codes = head + STRAIT_FP8_HEAD;
    struct factor left = {a, codes, 0, params.transpose_a, fp8.is_gradient};
    struct factor right = {b, codes + y.rows * inner, 1, !params.transpose_b, 0};
    STRAIT_TRY(find_largest(s, head, a, b));
    STRAIT_TRY(round_factor(s, head, &left));
    STRAIT_TRY(round_factor(s, head, &right));
    const strait_cuda_fp8_scale *of = ((strait_cuda_fp8_head *)(void *)head)->of;
    const strait_cuda_factors factors = {.y = y.data,
                                         .a = left.codes,
                                         .b = right.codes,
                                         .alpha = params.alpha,
                                         .beta = params.beta,
                                         .scales = {&of[0].value, &of[1].value}};
    return multiply(s, y, factors, inner, fp8.is_gradient);
}

void strait_cuda_fp8(struct strait_kernel_set *set) {
    set->fp8.matmul = matmul;
}
