/* blas.c - opens cublasLt and plans products: descriptors and algorithm, once per shape.
 *
 * The algorithm is the first that cublasLt's heuristic proposes for a fixed workspace. It is chosen
 * by timing only where a file keeps the choice (tune.h): otherwise two runs could choose
 * differently and differ in their bits. */
#include "backend/cuda/blas.h"

#include "backend/cuda/library.h"
#include "base/alloc.h"

#include <string.h>

/* The functions we use are the same in both versions; the error names the newer one. */
static strait_err open_library(char path[STRAIT_CUDA_PATH], void **out) {
    if (strait_cuda_library_open("libcublasLt.so.13", path, out) == STRAIT_OK ||
        strait_cuda_library_open("libcublasLt.so.12", path, out) == STRAIT_OK)
        return STRAIT_OK;
    return strait_cuda_library_open("libcublasLt.so.13", path, out);
}

/* For strait doctor: says whether and where the library is found. */
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
_Static_assert(sizeof names == sizeof(struct strait_cuda_blas_table), "one pointer per name");

/* Without a tuning file nothing is timed, and every run chooses the same algorithms. */
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
    if (*strait_cuda_tune_path() != '\0')
        STRAIT_TRY(strait_cuda_tune_open(strait_cuda_tune_path(), &cuda->blas->tune));
    return strait_cuda_blas_check(be, cuda->blas->table.cublasLtCreate(&cuda->blas->handle),
                                  "starting cublasLt");
}

void strait_cuda_blas_close(struct strait_cuda *cuda) {
    if (cuda->blas == NULL) return;
    if (cuda->blas->handle != NULL) (void)cuda->blas->table.cublasLtDestroy(cuda->blas->handle);
    strait_cuda_tune_close(&cuda->blas->tune);
    strait_alloc_free(cuda->blas);
    cuda->blas = NULL;
}

/* Other types never reach a product. */
static cudaDataType_t type_of(int64_t type) {
    switch (type) {
    case STRAIT_CUDA_E4M3: return CUDA_R_8F_E4M3;
    case STRAIT_CUDA_E5M2: return CUDA_R_8F_E5M2;
    case STRAIT_BF16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
    }
}

static int is_fp8(int64_t type) {
    return type == STRAIT_CUDA_E4M3 || type == STRAIT_CUDA_E5M2;
}

/* A row-major tensor of rows x cols is a column-major one of cols x rows. */
static cublasStatus_t lay_out(const struct strait_cuda_blas *blas, cublasLtMatrixLayoutOpaque_t *to,
                              int64_t type, int64_t rows, int64_t cols) {
    return blas->table.cublasLtMatrixLayoutInit_internal(to, sizeof *to, type_of(type),
                                                         (uint64_t)cols, (uint64_t)rows, cols);
}

/* cublasLt is column-major: the product is computed as y' = b' a', so a and b change places. */
static cublasStatus_t describe(const struct strait_backend *be, struct strait_cuda_plan *plan) {
    const struct strait_cuda_blas *blas = strait_cuda_of(be)->blas;
    const struct strait_cuda_blas_table *table = &blas->table;
    const int64_t *p = plan->product.at, m = p[STRAIT_CUDA_M], n = p[STRAIT_CUDA_N];
    const int64_t k = p[STRAIT_CUDA_K];
    const int ta = p[STRAIT_CUDA_TRANSPOSE_A] != 0, tb = p[STRAIT_CUDA_TRANSPOSE_B] != 0;
    const int64_t from = p[STRAIT_CUDA_FROM];
    const int8_t is_fast = is_fp8(from) && p[STRAIT_CUDA_TF32] ? 1 : 0;
    const cublasComputeType_t compute = p[STRAIT_CUDA_TF32] && !is_fast
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = table->cublasLtMatmulDescInit_internal(
        &plan->params, sizeof plan->params, compute, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = table->cublasLtMatmulDescSetAttribute(&plan->params, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &op_b, sizeof op_b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = table->cublasLtMatmulDescSetAttribute(&plan->params, CUBLASLT_MATMUL_DESC_TRANSB,
                                                       &op_a, sizeof op_a);
    if (status == CUBLAS_STATUS_SUCCESS && is_fast)
        status = table->cublasLtMatmulDescSetAttribute(
            &plan->params, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &is_fast, sizeof is_fast);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lay_out(blas, &plan->a, from, ta ? k : m, ta ? m : k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lay_out(blas, &plan->b, is_fp8(from) ? (int64_t)STRAIT_CUDA_E4M3 : from,
                         tb ? n : k, tb ? k : n);
    if (status == CUBLAS_STATUS_SUCCESS) status = lay_out(blas, &plan->y, p[STRAIT_CUDA_TO], m, n);
    return status;
}

/* What the heuristic may assume: the workspace, and the real alignment of each tensor. */
static cublasStatus_t prefer(const struct strait_cuda_blas_table *table,
                             cublasLtMatmulPreferenceOpaque_t *preference,
                             const strait_cuda_product *p) {
    const size_t space = STRAIT_CUDA_BLAS_SPACE;
    const uint32_t align_a = (uint32_t)p->at[STRAIT_CUDA_ALIGN_A];
    const uint32_t align_b = (uint32_t)p->at[STRAIT_CUDA_ALIGN_B];
    const uint32_t align_y = (uint32_t)p->at[STRAIT_CUDA_ALIGN_Y];
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } preferences[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_b, sizeof align_b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_a, sizeof align_a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_y, sizeof align_y},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_y, sizeof align_y},
    };
    cublasStatus_t status = table->cublasLtMatmulPreferenceInit_internal(preference,
                                                                         sizeof *preference);
    for (size_t i = 0;
         i < sizeof preferences / sizeof preferences[0] && status == CUBLAS_STATUS_SUCCESS; i++)
        status = table->cublasLtMatmulPreferenceSetAttribute(
            preference, preferences[i].what, preferences[i].value, preferences[i].bytes);
    return status;
}

/* Chooses among the proposals: the recorded one, or the fastest, which is then recorded. */
static strait_err choose(struct strait_stream *s, const struct strait_cuda_plan *plan,
                         const cublasLtMatmulHeuristicResult_t *proposals, int n,
                         strait_cuda_factors f, int *out) {
    struct strait_cuda_tune *tune = strait_cuda_of(s->backend)->blas->tune;
    *out = 0;
    if (tune == NULL) return STRAIT_OK;
    const int known = strait_cuda_tune_find(tune, plan->product.at);
    if (known >= 0) {
        *out = known < n ? known : 0;
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_cuda_blas_time(s, plan, proposals, n, f, out));
    return strait_cuda_tune_note(tune, plan->product.at, *out);
}

/* Fills in a plan. A product without any proposal is left to our own kernel. */
static strait_err create_plan(struct strait_stream *s, struct strait_cuda_plan *plan,
                              strait_cuda_factors f) {
    const struct strait_backend *be = s->backend;
    const struct strait_cuda_blas *blas = strait_cuda_of(be)->blas;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t proposals[STRAIT_CUDA_BLAS_PROPOSALS] = {0};
    int n = 0, chosen = 0;
    STRAIT_TRY(strait_cuda_blas_check(be, describe(be, plan), "matmul"));
    /* The same algorithm for any number of matrices: bits must not depend on it. */
    strait_cuda_factors usual = f;
    usual.n = STRAIT_CUDA_BLAS_MANY;
    STRAIT_TRY(strait_cuda_blas_check(be, strait_cuda_blas_set_call(blas, plan, usual), "matmul"));
    STRAIT_TRY(
        strait_cuda_blas_check(be, prefer(&blas->table, &preference, &plan->product), "matmul"));
    const cublasStatus_t status = blas->table.cublasLtMatmulAlgoGetHeuristic(
        blas->handle, &plan->params, &plan->b, &plan->a, &plan->y, &plan->y, &preference,
        blas->tune != NULL ? STRAIT_CUDA_BLAS_PROPOSALS : 1, proposals, &n);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
        STRAIT_TRY(strait_cuda_blas_check(be, status, "matmul"));
    plan->is_plain = status != CUBLAS_STATUS_SUCCESS || n == 0;
    if (!plan->is_plain) STRAIT_TRY(choose(s, plan, proposals, n, f, &chosen));
    plan->algorithm = proposals[chosen].algo;
    plan->is_set = 1;
    return STRAIT_OK;
}

/* Where the search for a product starts in the hash table. */
static size_t slot_of(const strait_cuda_product *p) {
    uint64_t hash = 0;
    for (int i = 0; i < STRAIT_CUDA_FIELDS; i++)
        hash = (hash ^ (uint64_t)p->at[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 40) % STRAIT_CUDA_BLAS_PLANS;
}

/* A table of fixed size, because a plan must not allocate during a step. */
strait_err strait_cuda_blas_plan(struct strait_stream *s, const strait_cuda_product *product,
                                 strait_cuda_factors f, const struct strait_cuda_plan **out) {
    struct strait_cuda_blas *blas = strait_cuda_of(s->backend)->blas;
    if (blas->n_plans >
        STRAIT_CUDA_BLAS_PLANS * 3 / 4) { // start over: plans are created the same again
        memset(blas->plans, 0, sizeof blas->plans);
        blas->n_plans = 0;
    }
    size_t i = slot_of(product);
    while (blas->plans[i].is_set && memcmp(&blas->plans[i].product, product, sizeof *product) != 0)
        i = (i + 1) % STRAIT_CUDA_BLAS_PLANS;
    struct strait_cuda_plan *plan = &blas->plans[i];
    if (!plan->is_set) {
        plan->product = *product;
        STRAIT_TRY(create_plan(s, plan, f));
        blas->n_plans++;
    }
    *out = plan;
    return STRAIT_OK;
}
