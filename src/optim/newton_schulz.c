#include "optim/newton_schulz.h"

enum {
    N_ITERATIONS = 8 // even: the result ends in the first of the two buffers
};

static const float norm_epsilon = 1e-7f;

void strait_newton_schulz_reserve(struct strait_newton_schulz *ns, int64_t rows, int64_t cols) {
    const int64_t k = rows < cols ? rows : cols;
    if (rows * cols > ns->n_max) ns->n_max = rows * cols;
    if (k > ns->k_max) ns->k_max = k;
}

strait_err strait_newton_schulz_plan(struct strait_newton_schulz *ns, struct strait_slab *slab) {
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, ns->n_max, &ns->y));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, ns->k_max, ns->k_max, &ns->a));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, ns->k_max, ns->k_max, &ns->b));
    return strait_slab_add(slab, STRAIT_F32, 1, 1, &ns->total);
}

/* The beginning of a scratch tensor as a matrix of another shape. */
static strait_tensor view(strait_tensor scratch, int64_t rows, int64_t cols) {
    return (strait_tensor){scratch.data, scratch.dtype, rows, cols};
}

/* y = 2 x + (-1.5 A + 0.5 A A) x. A tall x is multiplied from the right: the transpose of the same
 * product, as A is symmetric. */
static strait_err iterate(struct strait_newton_schulz *ns, struct strait_stream *s, strait_tensor y,
                          strait_tensor x) {
    const struct strait_kernels *kernels = s->backend->kernels;
    const int is_tall = x.rows > x.cols;
    const int64_t k = is_tall ? x.cols : x.rows;
    const strait_tensor a = view(ns->a, k, k), b = view(ns->b, k, k);
    const strait_matmul_params gram = {
        .transpose_a = is_tall, .transpose_b = !is_tall, .alpha = 1, .beta = 0};
    STRAIT_TRY(kernels->matmul(s, a, x, x, gram));
    STRAIT_TRY(kernels->cast(s, b, a));
    STRAIT_TRY(kernels->matmul(s, b, a, a, (strait_matmul_params){.alpha = 0.5f, .beta = -1.5f}));
    STRAIT_TRY(kernels->cast(s, y, x));
    return kernels->matmul(s, y, is_tall ? x : b, is_tall ? b : x,
                           (strait_matmul_params){.alpha = 1, .beta = 2});
}

/* The iteration converges for singular values up to 1, so x is divided by its Frobenius norm first.
 */
strait_err strait_newton_schulz(struct strait_newton_schulz *ns, struct strait_stream *s,
                                strait_tensor x) {
    const struct strait_kernels *kernels = s->backend->kernels;
    const strait_tensor y = view(ns->y, x.rows, x.cols);
    STRAIT_TRY(kernels->sum_squares(s, ns->total, x));
    STRAIT_TRY(kernels->normalise(s, x, x, ns->total, norm_epsilon));
    for (int i = 0; i < N_ITERATIONS; i += 2) {
        STRAIT_TRY(iterate(ns, s, y, x));
        STRAIT_TRY(iterate(ns, s, x, y));
    }
    return STRAIT_OK;
}
