/* ref_optim.c - clipping by global norm, AdamW. */
#include "backend/cpu/cpu.h"

#include <math.h>

static strait_err clip(struct strait_stream *s, strait_tensor scale, strait_tensor totals,
                       float max_norm) {
    (void)s;
    assert(strait_cpu_count(scale) >= 2);
    double sum = 0;
    for (int64_t i = 0; i < strait_cpu_count(totals); i++)
        sum += (double)strait_cpu_f32(totals)[i];
    const double norm = sqrt(sum);
    float *to = strait_cpu_f32(scale);
    to[1] = (float)norm;
    to[0] = !isfinite(norm)                              ? 0.0f
            : max_norm > 0.0f && norm > (double)max_norm ? (float)((double)max_norm / norm)
                                                         : 1.0f;
    return STRAIT_OK;
}

/* v [1 x cols] moves towards the mean of the squares of each column. */
static void move_shared(float *v, strait_tensor grad, double by, double beta2) {
    const float *g = strait_cpu_f32(grad);
    for (int64_t c = 0; c < grad.cols; c++) {
        double squares = 0;
        for (int64_t r = 0; r < grad.rows; r++) {
            const double d = by == 0 ? 0 : (double)g[r * grad.cols + c] * by;
            squares += d * d;
        }
        v[c] = (float)(beta2 * (double)v[c] + (1 - beta2) * squares / (double)grad.rows);
    }
}

static strait_err adamw(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_how how) {
    (void)s;
    assert(strait_cpu_same_shape(weight, m) && strait_cpu_same_shape(weight, grad));
    assert(v.cols == weight.cols && (v.rows == weight.rows || v.rows == 1));
    assert(how.step >= 1);
    const int is_shared = v.rows != weight.rows;
    const double beta1 = (double)how.beta1, beta2 = (double)how.beta2, rate = (double)how.rate;
    const double whole1 = 1 - pow(beta1, (double)how.step); // of 1, what m has seen so far
    const double whole2 = 1 - pow(beta2, (double)how.step);
    const double by = scale.data != NULL ? (double)strait_cpu_f32(scale)[0] : 1;
    float *w = strait_cpu_f32(weight), *first = strait_cpu_f32(m), *second = strait_cpu_f32(v);
    if (is_shared) move_shared(second, grad, by, beta2);
    for (int64_t i = 0; i < strait_cpu_count(weight); i++) {
        /* A scale of 0 silences gradients that are not finite, too. */
        const double g = by == 0 ? 0 : (double)strait_cpu_f32(grad)[i] * by;
        float *square = &second[is_shared ? i % weight.cols : i];
        first[i] = (float)(beta1 * (double)first[i] + (1 - beta1) * g);
        if (!is_shared) *square = (float)(beta2 * (double)*square + (1 - beta2) * g * g);
        const double move = (double)first[i] / whole1 /
                            (sqrt((double)*square / whole2) + (double)how.epsilon);
        w[i] = (float)((double)w[i] * (1 - rate * (double)how.decay) - rate * move);
    }
    return STRAIT_OK;
}

void strait_ref_optim(struct strait_kernels *k) {
    k->clip = clip;
    k->adamw = adamw;
}
