/* blas.h - cublasLt, found at run time, and the matrix products planned with it. */
#pragma once

#include "backend/cuda/cuda.h"
#include "backend/cuda/tune.h"

#include <cublasLt.h>

/* Every function we use. Descriptors are initialised in our memory by the _internal functions, as
 * the header's own inline functions do. */
#define STRAIT_CUDA_BLAS(X)                  \
    X(cublasLtCreate)                        \
    X(cublasLtDestroy)                       \
    X(cublasLtGetStatusString)               \
    X(cublasLtMatmulDescInit_internal)       \
    X(cublasLtMatmulDescSetAttribute)        \
    X(cublasLtMatrixLayoutInit_internal)     \
    X(cublasLtMatrixLayoutSetAttribute)      \
    X(cublasLtMatmulPreferenceInit_internal) \
    X(cublasLtMatmulPreferenceSetAttribute)  \
    X(cublasLtMatmulAlgoGetHeuristic)        \
    X(cublasLtMatmul)

struct strait_cuda_blas_table {
#define X(name) __typeof__(name) *(name);
    STRAIT_CUDA_BLAS(X)
#undef X
};

/* Everything that decides how a product is computed. The same key gives the same plan in every run,
 * and so the same bits. */
enum strait_cuda_product_field {
    STRAIT_CUDA_M, // y is m x n, row-major
    STRAIT_CUDA_N,
    STRAIT_CUDA_K,
    STRAIT_CUDA_FROM, // strait_dtype, or a type of 8 bits below: of a
    STRAIT_CUDA_TO,
    STRAIT_CUDA_TF32, // f32 factors may be rounded; of 8 bits: sums may be shorter than f32
    STRAIT_CUDA_TRANSPOSE_A,
    STRAIT_CUDA_TRANSPOSE_B,
    STRAIT_CUDA_ADDS,    // bit 0: beta is not 0; bit 1: of many matrices, however many
    STRAIT_CUDA_ALIGN_A, // bytes, at most STRAIT_CUDA_BLAS_ALIGN
    STRAIT_CUDA_ALIGN_B,
    STRAIT_CUDA_ALIGN_Y,
    STRAIT_CUDA_FIELDS
};

_Static_assert((int)STRAIT_CUDA_FIELDS == (int)STRAIT_CUDA_TUNE_NUMBERS,
               "a tuning record identifies a product");

/* Bit 1 of STRAIT_CUDA_ADDS. */
#define STRAIT_CUDA_IS_MANY 2

typedef struct strait_cuda_product {
    int64_t at[STRAIT_CUDA_FIELDS];
} strait_cuda_product;

/* Types that only factors of products have. b is always e4m3 then. */
enum {
    STRAIT_CUDA_E4M3 = 16,
    STRAIT_CUDA_E5M2
};

enum {
    STRAIT_CUDA_BLAS_ALIGN = 16,                 // bytes: the widest access of any algorithm
    STRAIT_CUDA_BLAS_PLANS = 1024,               // slots of the hash table of plans
    STRAIT_CUDA_BLAS_PROPOSALS = 8,              // algorithms that are timed per product
    STRAIT_CUDA_BLAS_MANY = 8,                   // matrices for which an algorithm is chosen
    STRAIT_CUDA_BLAS_SPACE = STRAIT_CUDA_SCRATCH // workspace, the same for every product
};

/* A product as cublasLt sees it. cublasLt is column-major, so a and b swap places. */
struct strait_cuda_plan {
    strait_cuda_product product;
    int is_set;
    int is_plain; // cublasLt has no algorithm: our own kernel computes it; fields below unset
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

/* STRAIT_OK, or STRAIT_EDEVICE with the library's text. */
strait_err strait_cuda_blas_check(const struct strait_backend *be, cublasStatus_t status,
                                  const char *what);

/* The operands of one call; their alignment must be what the plan's product says. */
typedef struct strait_cuda_factors {
    void *y;
    const void *a, *b;
    float alpha, beta;
    const void *c;          // what beta multiplies; NULL: y
    int n;                  // matrices, where the product is one of many
    const float *scales[2]; // on the device: of a and of b; NULL unless they have 8 bits
} strait_cuda_factors;

/* Tells the plan what differs from call to call besides addresses: where the scales of its factors
 * are, and how many matrices there are, if it has any. */
cublasStatus_t strait_cuda_blas_set_call(const struct strait_cuda_blas *blas,
                                         const struct strait_cuda_plan *plan,
                                         strait_cuda_factors f);

/* Queues a planned product with one algorithm. */
strait_err strait_cuda_blas_run(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                const cublasLtMatmulAlgo_t *algorithm, strait_cuda_factors f);

/* The plan of a product, created on first use. Where products are timed (tune.h), timing reads
 * these factors and keeps their y unchanged. Valid until the next call. */
strait_err strait_cuda_blas_plan(struct strait_stream *s, const strait_cuda_product *product,
                                 strait_cuda_factors f, const struct strait_cuda_plan **out);

/* Times the proposals for a product. *out is the index of the fastest; the first one unless another
 * is clearly faster. */
strait_err strait_cuda_blas_time(struct strait_stream *s, const struct strait_cuda_plan *plan,
                                 const cublasLtMatmulHeuristicResult_t *proposals, int n,
                                 strait_cuda_factors f, int *out);
