/* blas.h - cublasLt, found at run time, and the matrix products that were planned with it. */
#pragma once

#include "backend/cuda/cuda.h"

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
typedef struct strait_cuda_product {
    int64_t m, n, k; // y is m x n, row by row
    strait_dtype from, to;
    int transpose_a, transpose_b;
    int adds;                           // beta is not 0
    uint32_t align_a, align_b, align_y; // bytes, at most STRAIT_CUDA_BLAS_ALIGN
} strait_cuda_product;

enum {
    STRAIT_CUDA_BLAS_ALIGN = 16, // the widest access that any algorithm makes
    STRAIT_CUDA_BLAS_PLANS = 1024,
    STRAIT_CUDA_BLAS_SPACE = STRAIT_CUDA_SCRATCH // workspace, the same for every product
};

/* A product as cublasLt sees it: by columns, so a and b change places. */
struct strait_cuda_plan {
    strait_cuda_product product;
    int is_set;
    int is_plain; // cublasLt knows no way: the fields below are not set
    cublasLtMatmulDescOpaque_t how;
    cublasLtMatrixLayoutOpaque_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
};

struct strait_cuda_blas {
    struct strait_cuda_blas_table table;
    cublasLtHandle_t handle;
    struct strait_cuda_plan plans[STRAIT_CUDA_BLAS_PLANS];
    int n_plans;
};

/* STRAIT_OK, or STRAIT_EDEVICE in the library's words. */
strait_err strait_cuda_blas_check(const struct strait_backend *be, cublasStatus_t status,
                                  const char *what);

/* The plan of a product, made on first use. Borrowed until the next call. */
strait_err strait_cuda_blas_plan(const struct strait_backend *be,
                                 const strait_cuda_product *product,
                                 const struct strait_cuda_plan **out);
