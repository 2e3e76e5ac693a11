/* blas.c - opens cublasLt and plans products: descriptions and algorithm, once a shape.
 *
 * The algorithm is the first that cublasLt's heuristic names for a fixed workspace. It is not
 * chosen by timing: a run would then differ from the next in its bits. */
#include "backend/cuda/blas.h"

#include "backend/cuda/library.h"
#include "base/alloc.h"

#include <string.h>

/* What is used here is the same in both versions; the error names the one that is wanted. */
static strait_err open_library(char path[STRAIT_CUDA_PATH], void **out) {
    if (strait_cuda_library_open("libcublasLt.so.13", path, out) == STRAIT_OK ||
        strait_cuda_library_open("libcublasLt.so.12", path, out) == STRAIT_OK)
        return STRAIT_OK;
    return strait_cuda_library_open("libcublasLt.so.13", path, out);
}

strait_err strait_cuda_blas_find(char path[STRAIT_CUDA_PATH]) {
    void *library = NULL;
    return open_library(path, &library);
}

strait_err strait_cuda_blas_check(const struct strait_backend *be, cublasStatus_t status,
                                  const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDEVICE, "device cuda:%d: %s: %s", be->ordinal, what,
                       strait_cuda_of(be)->blas->table.cublasLtGetStatusString(status));
}

static const char *const names[] = {
#define X(name) #name,
    STRAIT_CUDA_BLAS(X)
#undef X
};
_Static_assert(sizeof names == sizeof(struct strait_cuda_blas_table), "one pointer a name");

strait_err strait_cuda_blas_open(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    char path[STRAIT_CUDA_PATH];
    void *library = NULL;
    STRAIT_TRY(open_library(path, &library));
    STRAIT_TRY(strait_alloc(1, sizeof *cuda->blas, "plans of products", (void **)&cuda->blas));
    const strait_err err = strait_cuda_library_table(library, names, sizeof names / sizeof names[0],
                                                     &cuda->blas->table);
    if (err != STRAIT_OK) {
        strait_err_prefix("device cuda: %s is too old", path);
        return err;
    }
    return strait_cuda_blas_check(be, cuda->blas->table.cublasLtCreate(&cuda->blas->handle),
                                  "starting cublasLt");
}

void strait_cuda_blas_close(struct strait_cuda *cuda) {
    if (cuda->blas == NULL) return;
    if (cuda->blas->handle != NULL) (void)cuda->blas->table.cublasLtDestroy(cuda->blas->handle);
    strait_alloc_free(cuda->blas);
    cuda->blas = NULL;
}

static cudaDataType_t type_of(strait_dtype dtype) {
    return dtype == STRAIT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* A tensor of rows x cols, row by row, is one of cols x rows by columns. */
static cublasStatus_t lay_out(const struct strait_cuda_blas *blas, cublasLtMatrixLayoutOpaque_t *to,
                              strait_dtype dtype, int64_t rows, int64_t cols) {
    return blas->table.cublasLtMatrixLayoutInit_internal(to, sizeof *to, type_of(dtype),
                                                         (uint64_t)cols, (uint64_t)rows, cols);
}

static cublasStatus_t describe(const struct strait_backend *be, struct strait_cuda_plan *plan) {
    const struct strait_cuda_blas *blas = strait_cuda_of(be)->blas;
    const struct strait_cuda_blas_table *table = &blas->table;
    const strait_cuda_product *p = &plan->product;
    const int is_loose = p->from == STRAIT_F32 && be->precision == STRAIT_BF16;
    const cublasComputeType_t compute = is_loose ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t op_a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = table->cublasLtMatmulDescInit_internal(&plan->how, sizeof plan->how,
                                                                   compute, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = table->cublasLtMatmulDescSetAttribute(&plan->how, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &op_b, sizeof op_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = table->cublasLtMatmulDescSetAttribute(&plan->how, CUBLASLT_MATMUL_DESC_TRANSB,
                                                       &op_a, sizeof op_a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lay_out(blas, &plan->a, p->from, p->transpose_a ? p->k : p->m,
                         p->transpose_a ? p->m : p->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lay_out(blas, &plan->b, p->from, p->transpose_b ? p->n : p->k,
                         p->transpose_b ? p->k : p->n);
    if (status == CUBLAS_STATUS_SUCCESS) status = lay_out(blas, &plan->y, p->to, p->m, p->n);
    return status;
}

/* What the heuristic may count on: the workspace, and how the memory really lies. */
static cublasStatus_t prefer(const struct strait_cuda_blas_table *table,
                             cublasLtMatmulPreferenceOpaque_t *preference,
                             const strait_cuda_product *p) {
    const size_t space = STRAIT_CUDA_BLAS_SPACE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->align_b, sizeof p->align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->align_a, sizeof p->align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p->align_y, sizeof p->align_y},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->align_y, sizeof p->align_y},
    };
    cublasStatus_t status = table->cublasLtMatmulPreferenceInit_internal(preference,
                                                                         sizeof *preference);
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0] && status == CUBLAS_STATUS_SUCCESS; i++)
        status = table->cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].what,
                                                             wishes[i].value, wishes[i].bytes);
    return status;
}

static strait_err make(const struct strait_backend *be, struct strait_cuda_plan *plan) {
    const struct strait_cuda_blas *blas = strait_cuda_of(be)->blas;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best = {0};
    int n_found = 0;
    STRAIT_TRY(strait_cuda_blas_check(be, describe(be, plan), "matmul"));
    STRAIT_TRY(
        strait_cuda_blas_check(be, prefer(&blas->table, &preference, &plan->product), "matmul"));
    const cublasStatus_t status = blas->table.cublasLtMatmulAlgoGetHeuristic(
        blas->handle, &plan->how, &plan->b, &plan->a, &plan->y, &plan->y, &preference, 1, &best,
        &n_found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
        STRAIT_TRY(strait_cuda_blas_check(be, status, "matmul"));
    plan->is_plain = status != CUBLAS_STATUS_SUCCESS || n_found == 0;
    plan->algorithm = best.algo;
    plan->is_set = 1;
    return STRAIT_OK;
}

static size_t place_of(const strait_cuda_product *p) {
    const int64_t numbers[] = {p->m,       p->n,           p->k,           p->from,
                               p->to,      p->transpose_a, p->transpose_b, p->adds,
                               p->align_a, p->align_b,     p->align_y};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash = (hash ^ (uint64_t)numbers[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 40) % STRAIT_CUDA_BLAS_PLANS;
}

static int is_same(const strait_cuda_product *a, const strait_cuda_product *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->from == b->from && a->to == b->to &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
           a->adds == b->adds && a->align_a == b->align_a && a->align_b == b->align_b &&
           a->align_y == b->align_y;
}

strait_err strait_cuda_blas_plan(const struct strait_backend *be,
                                 const strait_cuda_product *product,
                                 const struct strait_cuda_plan **out) {
    struct strait_cuda_blas *blas = strait_cuda_of(be)->blas;
    if (blas->n_plans > STRAIT_CUDA_BLAS_PLANS * 3 / 4) { // made again, they are the same
        memset(blas->plans, 0, sizeof blas->plans);
        blas->n_plans = 0;
    }
    size_t i = place_of(product);
    while (blas->plans[i].is_set && !is_same(&blas->plans[i].product, product))
        i = (i + 1) % STRAIT_CUDA_BLAS_PLANS;
    struct strait_cuda_plan *plan = &blas->plans[i];
    if (!plan->is_set) {
        plan->product = *product;
        STRAIT_TRY(make(be, plan));
        blas->n_plans++;
    }
    *out = plan;
    return STRAIT_OK;
}
