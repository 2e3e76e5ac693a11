/* simd_loss.c - cross-entropy (equations in ref_loss.c). One row at a time, so that its passes
 * (max, sum, gradient) read it from the cache. */
#include "backend/cpu/simd.h"

enum {
    SUM_RUN = 64 * LANES // values summed in f32 before their sum is added to a double
};

struct loss_rows {
    float *loss;
    act *logits;
    const int32_t *targets;
    int64_t n_rows, cols, rows; // rows of a task
    strait_loss_params params;
};

/* cap(logit), and its derivative in *slope. */
static inline vec capped(vec logit, float softcap, vec *slope) {
    *slope = splat(1.0f);
    if (softcap == 0.0f) return logit;
    const vec ratio = logit * (1.0f / softcap);
    const vec shrink = 1.0f / vec_sqrt(1.0f + ratio * ratio);
    *slope = shrink * shrink * shrink;
    return logit * shrink;
}

/* LANES capped logits from c on; beyond the row -infinity, which adds exp(-inf) = 0 to sums. */
static inline vec logits_at(const act *row, int64_t c, int64_t cols, float softcap, vec *slope) {
    if (c + LANES <= cols) return capped(load(row + c), softcap, slope);
    return lanes_below(capped(load_part(row + c, cols - c), softcap, slope), cols - c, -INFINITY);
}

/* Whole vectors without a cap come first, four at a time: the order does not matter here. */
static float row_max(const act *row, int64_t cols, float softcap) {
    vec max[4] = {splat(-INFINITY), splat(-INFINITY), splat(-INFINITY), splat(-INFINITY)}, slope;
    int64_t c = 0;
    for (; softcap == 0.0f && c + 4 * LANES <= cols; c += 4 * LANES)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            max[u] = larger(load(row + c + u * LANES), max[u]);
    for (; c < cols; c += LANES)
        max[0] = larger(logits_at(row, c, cols, softcap, &slope), max[0]);
    return max_lanes(larger(larger(max[0], max[1]), larger(max[2], max[3])));
}

/* Adds exp(logit - max) of whole runs of logits without a cap; four sums hide the latency of the
 * exponential. Returns how many columns are done. */
static int64_t add_runs(double *sum, const act *row, int64_t cols, float max) {
    int64_t c0 = 0;
    for (; c0 + SUM_RUN <= cols; c0 += SUM_RUN) {
        vec part[4] = {0};
        for (int64_t c = c0; c < c0 + SUM_RUN; c += 4 * LANES)
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                part[u] += exp_down(load(row + c + u * LANES) - max);
        *sum += (double)sum_lanes((part[0] + part[1]) + (part[2] + part[3]));
    }
    return c0;
}

/* The sum of exp(logit - max). */
static double row_sum(const act *row, int64_t cols, float softcap, float max) {
    double sum = 0;
    int64_t c0 = ACT_IS_HALF && softcap == 0.0f ? add_runs(&sum, row, cols, max) : 0;
    for (; c0 < cols; c0 += SUM_RUN) {
        vec part = {0}, slope;
        for (int64_t c = c0; c < smaller(cols, c0 + SUM_RUN); c += LANES)
            part += exp_down(logits_at(row, c, cols, softcap, &slope) - max);
        sum += (double)sum_lanes(part);
    }
    return sum;
}

/* The same for logits without a cap, which it replaces by exp(logit - max): the gradient is then
 * one multiplication per value, without a second exponential. */
static double row_sum_keep(act *row, int64_t cols, float max) {
    double sum = 0;
    int64_t c0 = 0;
    for (; c0 + SUM_RUN <= cols; c0 += SUM_RUN) {
        vec part[4] = {0};
        for (int64_t c = c0; c < c0 + SUM_RUN; c += 4 * LANES) {
            vec share[4];
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
                share[u] = exp_down(load(row + c + u * LANES) - max);
                part[u] += share[u];
            }
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++)
                store(row + c + u * LANES, share[u]);
        }
        sum += (double)sum_lanes((part[0] + part[1]) + (part[2] + part[3]));
    }
    for (int64_t c = c0; c < cols; c += LANES) {
        vec none;
        const vec share = exp_down(logits_at(row, c, cols, 0, &none) - max);
        store_some(row + c, share, cols - c);
        sum += (double)sum_lanes(share);
    }
    return sum;
}

/* Replaces logits by the gradient of the loss times params.scale. */
static void row_back(act *row, int64_t cols, int32_t target, strait_loss_params params,
                     float log_sum) {
    vec slope;
    const vec logit = capped(splat(get(row[target])), params.softcap, &slope);
    const float at_target = slope[0] * params.scale;
    int64_t c = 0;
    for (; ACT_IS_HALF && params.softcap == 0.0f && c + LANES <= cols; c += LANES)
        store(row + c, exp_down(load(row + c) - log_sum) * params.scale);
    for (; c < cols; c += LANES) {
        const vec share = vec_exp(logits_at(row, c, cols, params.softcap, &slope) - log_sum);
        store_some(row + c, share * slope * params.scale, cols - c);
    }
#if ACT_IS_HALF /* The stored share was rounded: near 1 it would lose the difference. */
    put(&row[target], (vec_exp(logit - log_sum)[0] - 1.0f) * at_target);
#else
    (void)logit;
    put(&row[target], get(row[target]) - at_target);
#endif
}

/* The loss of one row. With params.scale its logits are replaced by their gradient. */
static float row_loss(act *row, int64_t cols, int32_t target, strait_loss_params params) {
    vec slope;
    const double logit = (double)capped(splat(get(row[target])), params.softcap, &slope)[0];
    const float max = row_max(row, cols, params.softcap);
    /* bf16 has no place for exponentials that are rounded a second time. */
    const int is_kept = !ACT_IS_HALF && params.scale != 0.0f && params.softcap == 0.0f;
    const double sum = is_kept ? row_sum_keep(row, cols, max)
                               : row_sum(row, cols, params.softcap, max);
    const double log_sum = (double)max + log(sum);
    if (is_kept) {
        const float factor = (float)((double)params.scale / sum);
        for (int64_t c = 0; c < cols; c++)
            put(&row[c], get(row[c]) * factor);
        put(&row[target], get(row[target]) - params.scale);
    } else if (params.scale != 0.0f) {
        row_back(row, cols, target, params, (float)log_sum);
    }
    return (float)(log_sum - logit);
}

/* A row without a target has neither loss nor gradient. */
static void loss_task(void *arg, int task) {
    const struct loss_rows *l = arg;
    const int64_t end = smaller(l->n_rows, (task + 1) * l->rows);
    for (int64_t n = task * l->rows; n < end; n++) {
        act *row = l->logits + n * l->cols;
        const int32_t target = l->targets[n];
        assert(target < l->cols);
        l->loss[n] = 0;
        if (target < 0) {
            if (l->params.scale != 0.0f) memset(row, 0, (size_t)l->cols * sizeof *row);
            continue;
        }
        l->loss[n] = row_loss(row, l->cols, target, l->params);
    }
}

static strait_err cross_entropy(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_params params) {
    assert(loss.rows == logits.rows && targets.rows == logits.rows);
    struct loss_rows l = {.loss = strait_cpu_f32(loss),
                          .logits = act_of(logits),
                          .targets = strait_cpu_i32(targets),
                          .n_rows = logits.rows,
                          .cols = logits.cols,
                          .rows = task_rows(logits.cols),
                          .params = params};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(l.n_rows, l.rows), loss_task, &l);
    return STRAIT_OK;
}

void SIMD(loss)(struct strait_kernel_set *set) {
    set->base.cross_entropy = cross_entropy;
}
