/* ref_optim.c - gradient clipping by global norm, and AdamW. */
#include "backend/cpu/cpu.h"

#include <math.h>

/* The norm is left beside the factor: where it is not finite the update is skipped on the device,
 * without a round trip to the host. */
static strait_err clip(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       double max_norm) {
    (void)s;
    assert(strait_cpu_count(scale) >= 2);
    double sum = 0;
    for (int64_t i = 0; i < strait_cpu_count(totals); i++)
        sum += (double)strait_cpu_f32(totals)[i];
    const double norm = sqrt(sum);
    float *to = strait_cpu_f32(scale);
    to[1] = (float)norm;
    to[0] = !isfinite(norm)                   ? 0.0f
            : max_norm > 0 && norm > max_norm ? (float)(max_norm / norm)
                                              : 1.0f;
    return STRAIT_OK;
}

/* v = beta2 v + (1 - beta2) mean(g^2), where the mean is over the column or row that shares v. */
static void update_shared_moment(strait_tensor v, strait_tensor grad, double grad_scale,
                                 double beta2) {
    const int is_column = v.cols == grad.cols;
    const int64_t n = strait_cpu_count(grad) / strait_cpu_count(v);
    for (int64_t i = 0; i < strait_cpu_count(v); i++) {
        const float *g = strait_cpu_f32(grad) + (is_column ? i : i * grad.cols);
        double squares = 0;
        for (int64_t j = 0; j < n; j++) {
            const double d = grad_scale == 0
                                 ? 0
                                 : (double)g[is_column ? j * grad.cols : j] * grad_scale;
            squares += d * d;
        }
        const double mean = squares / (double)n;
        strait_cpu_f32(v)[i] = (float)(beta2 * (double)strait_cpu_f32(v)[i] + (1 - beta2) * mean);
    }
}

static strait_err adamw(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_params params) {
    (void)s;
    const int is_own = strait_cpu_same_shape(v, weight); // one second moment per weight
    assert(strait_cpu_same_shape(weight, m) && strait_cpu_same_shape(weight, grad));
    assert(is_own || (v.rows == 1 && v.cols == weight.cols) ||
           (v.cols == 1 && v.rows == weight.rows));
    assert(params.step >= 1);
    if (strait_cpu_has_nonfinite_norm(scale)) return STRAIT_OK;
    const double beta1 = (double)params.beta1, beta2 = (double)params.beta2,
                 rate = (double)params.learning_rate;
    const double whole1 =
        1 -
        pow(beta1, (double)params.step); // bias correction: the total weight of past gradients in m
    const double whole2 = 1 - pow(beta2, (double)params.step);
    const double grad_scale = scale.data != NULL ? (double)strait_cpu_f32(scale)[0] : 1;
    float *w = strait_cpu_f32(weight), *first = strait_cpu_f32(m), *second = strait_cpu_f32(v);
    if (!is_own) update_shared_moment(v, grad, grad_scale, beta2);
    for (int64_t i = 0; i < strait_cpu_count(weight); i++) {
        /* 0 times a non-finite gradient would be NaN, so a scale of 0 skips the product. */
        const double g = grad_scale == 0 ? 0 : (double)strait_cpu_f32(grad)[i] * grad_scale;
        float *square = &second[is_own ? i : v.rows == 1 ? i % v.cols : i / weight.cols];
        first[i] = (float)(beta1 * (double)first[i] + (1 - beta1) * g);
        if (is_own) *square = (float)(beta2 * (double)*square + (1 - beta2) * g * g);
        const double move = (double)first[i] / whole1 /
                            (sqrt((double)*square / whole2) + (double)params.epsilon);
        w[i] = (float)((double)w[i] * (1 - rate * (double)params.weight_decay) - rate * move);
        if (params.copy.data != NULL) strait_cpu_put(params.copy, i, w[i]);
    }
    return STRAIT_OK;
}

/* One tensor at a time, with the backend's own kernels: calls cost nothing on the cpu. */
static strait_err sum_squares_each(struct strait_stream *s, strait_tensor totals,
                                   const strait_tensor *x, int n) {
    for (int i = 0; i < n; i++)
        STRAIT_TRY(s->backend->kernels->sum_squares(s, strait_tensor_rows(totals, i, 1), x[i]));
    return STRAIT_OK;
}

static strait_err adamw_each(struct strait_stream *s, const strait_adamw_item *items, int n,
                             strait_tensor scale) {
    for (int i = 0; i < n; i++)
        STRAIT_TRY(s->backend->kernels->adamw(s, items[i].weight, items[i].m, items[i].v,
                                              items[i].grad, scale, items[i].params));
    return STRAIT_OK;
}

void strait_ref_optim(struct strait_kernel_set *set) {
    set->base.clip = clip;
    set->base.adamw = adamw;
    set->base.sum_squares_each = sum_squares_each;
    set->base.adamw_each = adamw_each;
}
