#include "optim/newton_schulz.h"

#include <assert.h>

enum {
    N_ITERATIONS = 8 // even: the result ends in the first of the two buffers
};

static const float norm_epsilon = 1e-7f;

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

void strait_newton_schulz_reserve(struct strait_newton_schulz *ns, int64_t rows, int64_t cols,
                                  int n) {
    const int64_t k = rows < cols ? rows : cols;
    assert(n >= 1 && n <= STRAIT_NEWTON_SCHULZ_MOST);
    ns->n_max = larger(ns->n_max, n * rows * cols);
    ns->squares_max = larger(ns->squares_max, n * k * k);
    ns->count_max = larger(ns->count_max, n);
}

strait_err strait_newton_schulz_plan(struct strait_newton_schulz *ns, struct strait_slab *slab) {
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, ns->n_max, &ns->y));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, ns->squares_max, &ns->a));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, ns->squares_max, &ns->b));
    return strait_slab_add(slab, STRAIT_F32, ns->count_max, 1, &ns->totals);
}

/* The beginning of a scratch tensor as matrices of another shape. */
static strait_tensor view(strait_tensor scratch, int64_t rows, int64_t cols) {
    return (strait_tensor){scratch.data, scratch.dtype, rows, cols};
}

/* y = 2 x + (-1.5 A + 0.5 A A) x. A tall x is multiplied from the right: the transpose of the same
 * product, as A is symmetric. */
static strait_err iterate(struct strait_newton_schulz *ns, struct strait_stream *s, strait_tensor y,
                          strait_tensor x, int n) {
    const struct strait_group_kernels *groups = s->backend->kernels->groups;
    const int64_t rows = x.rows / n;
    const int is_tall = rows > x.cols;
    const int64_t k = is_tall ? x.cols : rows;
    const strait_tensor a = view(ns->a, n * k, k), b = view(ns->b, n * k, k);
    const strait_matmul_params gram = {
        .transpose_a = is_tall, .transpose_b = !is_tall, .alpha = 1, .beta = 0};
    STRAIT_TRY(groups->multiply(s, a, (strait_tensor){0}, x, x, n, gram));
    STRAIT_TRY(
        groups->multiply(s, b, a, a, a, n, (strait_matmul_params){.alpha = 0.5f, .beta = -1.5f}));
    return groups->multiply(s, y, x, is_tall ? x : b, is_tall ? b : x, n,
                            (strait_matmul_params){.alpha = 1, .beta = 2});
}

/* The iteration converges for singular values up to 1, so each matrix is divided by its Frobenius
 * norm first. */
strait_err strait_newton_schulz(struct strait_newton_schulz *ns, struct strait_stream *s,
                                strait_tensor x, int n) {
    const struct strait_kernels *kernels = s->backend->kernels;
    const strait_tensor y = view(ns->y, x.rows, x.cols);
    const strait_tensor totals = strait_tensor_rows(ns->totals, 0, n);
    strait_tensor each[STRAIT_NEWTON_SCHULZ_MOST];
    for (int i = 0; i < n; i++)
        each[i] = strait_tensor_rows(x, i * (x.rows / n), x.rows / n);
    STRAIT_TRY(kernels->sum_squares_each(s, totals, each, n));
    STRAIT_TRY(kernels->groups->normalise(s, x, totals, norm_epsilon));
    for (int i = 0; i < N_ITERATIONS; i += 2) {
        STRAIT_TRY(iterate(ns, s, y, x, n));
        STRAIT_TRY(iterate(ns, s, x, y, n));
    }
    return STRAIT_OK;
}
