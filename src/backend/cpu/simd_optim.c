/* simd_optim.c - AdamW in one pass over weight, gradient and moments. */
#include "backend/cpu/simd.h"

/* The constants of one update, with bias corrections folded in:
 *   w = w keep - m / (sqrt(v) root + epsilon) rate */
typedef struct step_factors {
    float grad; // clipping factor of the gradients
    float beta1, beta2;
    float keep; // 1 - learning rate * weight decay
    float rate; // learning rate / (1 - beta1^step)
    float root; // 1 / sqrt(1 - beta2^step)
    float epsilon;
} step_factors;

struct adamw {
    float *weight, *m, *v;
    uint16_t *copy; // bf16, or NULL
    const float *grad;
    int64_t n_rows, cols, rows; // rows of a task
    step_factors factors;
};

static step_factors step_of(strait_adamw_params params, float grad) {
    const double whole1 = 1 - pow((double)params.beta1, (double)params.step);
    const double whole2 = 1 - pow((double)params.beta2, (double)params.step);
    return (step_factors){
        .grad = grad,
        .beta1 = params.beta1,
        .beta2 = params.beta2,
        .keep = (float)(1 - (double)params.learning_rate * (double)params.weight_decay),
        .rate = (float)((double)params.learning_rate / whole1),
        .root = (float)(1 / sqrt(whole2)),
        .epsilon = params.epsilon};
}

/* The clipped gradient. A factor of 0 gives 0 even for non-finite gradients, where a product would
 * be NaN. */
static inline vec grad_of(const float *grad, int64_t left, float factor) {
    return factor == 0.0f ? (vec){0} : load_some(grad, left) * factor;
}

/* Updates m, w and its copy for up to LANES values from `at` on, given the new second moment v. */
static inline void update(const struct adamw *a, int64_t at, vec grad, vec v, int64_t left) {
    const step_factors *factors = &a->factors;
    float *m = a->m + at, *w = a->weight + at;
    const vec first = load_some(m, left) * factors->beta1 + grad * (1.0f - factors->beta1);
    store_some(m, first, left);
    const vec step = first / (vec_sqrt(v) * factors->root + factors->epsilon);
    const vec weight = load_some(w, left) * factors->keep - step * factors->rate;
    store_some(w, weight, left);
    if (a->copy != NULL) store_some(a->copy + at, weight, left);
}

/* One second moment per weight; the tensor counts as one long row. */
static void own_task(void *arg, int task) {
    const struct adamw *a = arg;
    const int64_t end = smaller(a->cols, (int64_t)(task + 1) * TASK_VALUES);
    for (int64_t i = (int64_t)task * TASK_VALUES; i < end; i += LANES) {
        const int64_t left = end - i;
        const vec grad = grad_of(a->grad + i, left, a->factors.grad);
        const vec v = load_some(a->v + i, left) * a->factors.beta2 +
                      grad * grad * (1.0f - a->factors.beta2);
        store_some(a->v + i, v, left);
        update(a, i, grad, v, left);
    }
}

/* One second moment per row. */
static void row_task(void *arg, int task) {
    const struct adamw *a = arg;
    const int64_t end = smaller(a->n_rows, (task + 1) * a->rows);
    for (int64_t r = task * a->rows; r < end; r++) {
        const int64_t at = r * a->cols;
        double squares = 0;
        for (int64_t c = 0; c < a->cols; c += LANES) {
            const vec grad = grad_of(a->grad + at + c, a->cols - c, a->factors.grad);
            squares += (double)sum_lanes(grad * grad);
        }
        const float mean = (float)(squares / (double)a->cols);
        a->v[r] = a->factors.beta2 * a->v[r] + (1.0f - a->factors.beta2) * mean;
        for (int64_t c = 0; c < a->cols; c += LANES)
            update(a, at + c, grad_of(a->grad + at + c, a->cols - c, a->factors.grad),
                   splat(a->v[r]), a->cols - c);
    }
}

enum {
    SHARED_COLS = 64 // columns per task
};

/* One second moment per column: squares are summed over rows first, in order. */
static void column_task(void *arg, int task) {
    const struct adamw *a = arg;
    const int64_t c0 = (int64_t)task * SHARED_COLS, n_cols = smaller(SHARED_COLS, a->cols - c0);
    double squares[SHARED_COLS] = {0};
    for (int64_t r = 0; r < a->n_rows && a->factors.grad != 0.0f; r++)
        for (int64_t c = 0; c < n_cols; c++) {
            const double grad = (double)(a->grad[r * a->cols + c0 + c] * a->factors.grad);
            squares[c] += grad * grad;
        }
    for (int64_t c = 0; c < n_cols; c++) {
        const float mean = (float)(squares[c] / (double)a->n_rows);
        a->v[c0 + c] = a->factors.beta2 * a->v[c0 + c] + (1.0f - a->factors.beta2) * mean;
    }
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int64_t c = 0; c < n_cols; c += LANES) {
            const int64_t at = r * a->cols + c0 + c, left = n_cols - c;
            update(a, at, grad_of(a->grad + at, left, a->factors.grad),
                   load_some(a->v + c0 + c, left), left);
        }
}

static strait_err adamw(struct strait_stream *s, strait_tensor weight, strait_tensor m,
                        strait_tensor v, strait_tensor grad, strait_tensor scale,
                        strait_adamw_params params) {
    assert(strait_cpu_same_shape(weight, m) && strait_cpu_same_shape(weight, grad));
    assert(params.step >= 1);
    assert(params.copy.data == NULL || params.copy.dtype == STRAIT_BF16);
    if (strait_cpu_has_nonfinite_norm(scale)) return STRAIT_OK;
    struct adamw a = {
        .weight = strait_cpu_f32(weight),
        .m = strait_cpu_f32(m),
        .v = strait_cpu_f32(v),
        .copy = params.copy.data,
        .grad = strait_cpu_f32(grad),
        .n_rows = weight.rows,
        .cols = weight.cols,
        .rows = task_rows(weight.cols),
        .factors = step_of(params, scale.data != NULL ? strait_cpu_f32(scale)[0] : 1.0f)};
    struct strait_pool *pool = strait_cpu_pool(s);
    if (strait_cpu_same_shape(v, weight)) {
        a.cols = strait_cpu_count(weight);
        strait_pool_run(pool, (int)pieces(a.cols, TASK_VALUES), own_task, &a);
    } else if (v.cols == weight.cols) {
        assert(v.rows == 1);
        strait_pool_run(pool, (int)pieces(a.cols, SHARED_COLS), column_task, &a);
    } else {
        assert(v.cols == 1 && v.rows == weight.rows);
        strait_pool_run(pool, (int)pieces(a.n_rows, a.rows), row_task, &a);
    }
    return STRAIT_OK;
}

void SIMD(optim)(struct strait_kernel_set *set) {
    set->base.adamw = adamw;
}
