#include "optim/muon.h"

#include <math.h>

enum {
    N_ITERATIONS = 8 // even: the result is back in the first of two buffers
};

static const float norm_epsilon = 1e-7f;

void strait_muon_reserve(struct strait_muon *muon, int64_t rows, int64_t cols) {
    const int64_t k = rows < cols ? rows : cols;
    if (rows * cols > muon->n_max) muon->n_max = rows * cols;
    if (k > muon->k_max) muon->k_max = k;
}

strait_err strait_muon_plan(struct strait_muon *muon, struct strait_slab *slab) {
    if (muon->n_max == 0) return STRAIT_OK;
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, muon->n_max, &muon->x));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, muon->n_max, &muon->y));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, muon->k_max, muon->k_max, &muon->a));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, muon->k_max, muon->k_max, &muon->b));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, 1, 1, &muon->total));
    return strait_slab_add(slab, STRAIT_F32, 1, 1, &muon->one);
}

float strait_muon_momentum(float start, float momentum, int64_t warmup, int64_t step) {
    if (step > warmup) return momentum;
    return (float)(start + ((double)momentum - start) * (double)(step - 1) / (double)warmup);
}

/* The beginning of a scratch tensor as a matrix of another shape. */
static strait_tensor view(strait_tensor scratch, int64_t rows, int64_t cols) {
    return (strait_tensor){scratch.data, scratch.dtype, rows, cols};
}

typedef struct mix_how {
    float keep, take;
} mix_how;

/* y = keep y + take factor[0] x. The factor lies on the device and scaling by it must not wait for
 * a download: a product with a matrix of one value does it. */
static strait_err mix(struct strait_stream *s, strait_tensor y, strait_tensor x,
                      strait_tensor factor, mix_how how) {
    const int64_t n = y.rows * y.cols;
    return s->backend->kernels->matmul(s, strait_tensor_reshape(y, 1, n),
                                       strait_tensor_rows(factor, 0, 1),
                                       strait_tensor_reshape(x, 1, n),
                                       (strait_matmul_params){.alpha = how.take, .beta = how.keep});
}

/* y = 2 x + (-1.5 A + 0.5 A A) x. A tall x is multiplied from the right: the transpose of the same
 * product, as A is symmetric. */
static strait_err iterate(struct strait_muon *muon, struct strait_stream *s, strait_tensor y,
                          strait_tensor x) {
    const struct strait_kernels *kernels = s->backend->kernels;
    const int is_tall = x.rows > x.cols;
    const int64_t k = is_tall ? x.cols : x.rows;
    const strait_tensor a = view(muon->a, k, k), b = view(muon->b, k, k);
    const strait_matmul_params gram = {
        .transpose_a = is_tall, .transpose_b = !is_tall, .alpha = 1, .beta = 0};
    STRAIT_TRY(kernels->matmul(s, a, x, x, gram));
    STRAIT_TRY(kernels->cast(s, b, a));
    STRAIT_TRY(kernels->matmul(s, b, a, a, (strait_matmul_params){.alpha = 0.5f, .beta = -1.5f}));
    STRAIT_TRY(kernels->cast(s, y, x));
    return kernels->matmul(s, y, is_tall ? x : b, is_tall ? b : x,
                           (strait_matmul_params){.alpha = 1, .beta = 2});
}

/* x = N(x), with y as the second buffer. */
static strait_err orthogonalise(struct strait_muon *muon, struct strait_stream *s, strait_tensor x,
                                strait_tensor y) {
    const struct strait_kernels *kernels = s->backend->kernels;
    STRAIT_TRY(kernels->sum_squares(s, muon->total, x));
    STRAIT_TRY(kernels->normalise(s, x, x, muon->total, norm_epsilon));
    for (int i = 0; i < N_ITERATIONS; i += 2) {
        STRAIT_TRY(iterate(muon, s, y, x));
        STRAIT_TRY(iterate(muon, s, x, y));
    }
    return STRAIT_OK;
}

strait_err strait_muon_orthogonalise(struct strait_muon *muon, struct strait_stream *s,
                                     strait_tensor x) {
    return orthogonalise(muon, s, x, view(muon->y, x.rows, x.cols));
}

strait_err strait_muon_step(struct strait_muon *muon, struct strait_stream *s, strait_tensor weight,
                            strait_tensor m, strait_tensor grad, strait_tensor scale,
                            strait_muon_params how) {
    const struct strait_kernels *kernels = s->backend->kernels;
    const strait_tensor u = view(muon->x, weight.rows, weight.cols);
    const mix_how average = {.keep = how.momentum, .take = 1 - how.momentum};
    STRAIT_TRY(mix(s, m, grad, scale, average));
    STRAIT_TRY(kernels->cast(s, u, m));
    STRAIT_TRY(mix(s, u, grad, scale, average));
    STRAIT_TRY(strait_muon_orthogonalise(muon, s, u));
    const float stretch = sqrtf(fmaxf(1, (float)weight.rows / (float)weight.cols));
    STRAIT_TRY(kernels->fill(s, muon->one, 1));
    return mix(s, weight, u, muon->one,
               (mix_how){.keep = 1 - how.rate * how.decay, .take = -how.rate * stretch});
}
