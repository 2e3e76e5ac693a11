/* blas.h - cublasLt, found at run time, and the matrix products that were planned with it. */
#pragma once

#include "backend/cuda/cuda.h"
#include "backend/cuda/tune.h"

#include <cublasLt.h>

/* Every function that is used. Descriptions are made in place, so the _internal ones are called,
 * as the header's own inline functions do. */
#define STRAIT_CUDA_BLAS(X)                  \
    X(cublasLtCreate)                        \
    X(cublasLtDestroy)                       \
    X(cublasLtGetStatusString)               \
    X(cublasLtMatmulDescInit_internal)       \
    X(cublasLtMatmulDescSetAttribute)        \
    X(cublasLtMatrixLayoutInit_internal)     \
    X(cublasLtMatmulPreferenceInit_internal) \
    X(cublasLtMatmulPreferenceSetAttribute)  \
    X(cublasLtMatmulAlgoGetHeuristic)        \
    X(cublasLtMatmul)

struct strait_cuda_blas_table {
#define X(name) __typeof__(name) *(name);
    STRAIT_CUDA_BLAS(X)
#undef X
};

/* What decides how a product is computed. The same key gives the same plan, in every run. */
enum strait_cuda_product_field {
    STRAIT_CUDA_M, // y is m x n, row by row
    STRAIT_CUDA_N,
    STRAIT_CUDA_K,
    STRAIT_CUDA_FROM, // strait_dtype
    STRAIT_CUDA_TO,
    STRAIT_CUDA_TF32, // f32 factors may be rounded
    STRAIT_CUDA_TRANSPOSE_A,
    STRAIT_CUDA_TRANSPOSE_B,
    STRAIT_CUDA_ADDS,    // beta is not 0
    STRAIT_CUDA_ALIGN_A, // bytes, at most STRAIT_CUDA_BLAS_ALIGN
    STRAIT_CUDA_ALIGN_B,
    STRAIT_CUDA_ALIGN_Y,
    STRAIT_CUDA_FIELDS
};

_Static_assert((int)STRAIT_CUDA_FIELDS == (int)STRAIT_CUDA_TUNE_NUMBERS,
               "a record names a product");

typedef struct strait_cuda_product {
    int64_t at[STRAIT_CUDA_FIELDS];
} strait_cuda_product;

enum {
    STRAIT_CUDA_BLAS_ALIGN = 16, // the widest access that any algorithm makes
    STRAIT_CUDA_BLAS_PLANS = 1024,
    STRAIT_CUDA_BLAS_PROPOSALS = 8,              // that are timed
    STRAIT_CUDA_BLAS_SPACE = STRAIT_CUDA_SCRATCH // workspace, the same for every product
};

/* A product as cublasLt sees it: by columns, so a and b change places. */
struct strait_cuda_plan {
    strait_cuda_product product;
    int is_set;
    int is_plain; // cublasLt knows no way: the fields below are not set
    cublasLtMatmulDescOpaque_t params;
    cublasLtMatrixLayoutOpaque_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
};

struct strait_cuda_blas {
    struct strait_cuda_blas_table table;
    cublasLtHandle_t handle;
    struct strait_cuda_plan plans[STRAIT_CUDA_BLAS_PLANS];
    int n_plans;
    struct strait_cuda_tune *tune; // or NULL
};

/* STRAIT_OK, or STRAIT_EDEVICE in the library's words. */
strait_err strait_cuda_blas_check(const struct strait_backend *be, cublasStatus_t status,
                                  const char *what);

/* One call of cublasLt: a, b and y lie where the plan's product says. */
typedef struct strait_cuda_factors {
    void *y;
    const void *a, *b;
    float alpha, beta;
} strait_cuda_factors;

strait_err strait_cuda_blas_run(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                const cublasLtMatmulAlgo_t *algorithm, strait_cuda_factors f);

/* The plan of a product, made on first use; where products are timed, with these factors, whose y
 * is left alone. Borrowed until the next call. */
strait_err strait_cuda_blas_plan(struct strait_stream *s, const strait_cuda_product *product,
                                 strait_cuda_factors f, const struct strait_cuda_plan **out);

/* Times the proposals for a product and names the fastest; the first unless another is clearly
 * faster. */
strait_err strait_cuda_blas_time(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                 const cublasLtMatmulHeuristicResult_t *proposals, int n,
                                 strait_cuda_factors f, int *out);
