/* simd_loss.c - cross-entropy, a row at a time while it is in the cache. */
#include "backend/cpu/simd.h"

enum {
    SUM_RUN = 64 * LANES // added up in single precision before the sum goes to a double
};

struct loss_rows {
    float *loss, *logits;
    const int32_t *targets;
    int64_t n_rows, cols, rows; // rows of a task
    strait_loss_how how;
};

/* Capped logits, and the slope of the cap. */
static inline vec capped(vec logit, float softcap, vec *slope) {
    *slope = splat(1.0f);
    if (softcap == 0.0f) return logit;
    const vec ratio = logit * (1.0f / softcap);
    const vec shrink = 1.0f / vec_sqrt(1.0f + ratio * ratio);
    *slope = shrink * shrink * shrink;
    return logit * shrink;
}

/* LANES capped logits from c on; past the end of the row they are -infinity. */
static inline vec logits_at(const float *row, int64_t c, int64_t cols, float softcap, vec *slope) {
    if (c + LANES <= cols) return capped(load(row + c), softcap, slope);
    return lanes_below(capped(load_part(row + c, cols - c), softcap, slope), cols - c, -INFINITY);
}

static float row_max(const float *row, int64_t cols, float softcap) {
    vec max[2] = {splat(-INFINITY), splat(-INFINITY)}, slope;
    for (int64_t c = 0; c < cols; c += 2 * LANES) {
        max[0] = larger(logits_at(row, c, cols, softcap, &slope), max[0]);
        if (c + LANES < cols)
            max[1] = larger(logits_at(row, c + LANES, cols, softcap, &slope), max[1]);
    }
    return max_lanes(larger(max[0], max[1]));
}

static double row_sum(const float *row, int64_t cols, float softcap, float max) {
    double sum = 0;
    for (int64_t c0 = 0; c0 < cols; c0 += SUM_RUN) {
        vec part = {0}, slope;
        for (int64_t c = c0; c < smaller(cols, c0 + SUM_RUN); c += LANES)
            part += exp_down(logits_at(row, c, cols, softcap, &slope) - max);
        sum += (double)sum_lanes(part);
    }
    return sum;
}

/* Logits become the gradient of the loss, times how.scale. */
static void row_back(float *row, int64_t cols, int32_t target, strait_loss_how how, float log_sum) {
    vec slope;
    (void)capped(splat(row[target]), how.softcap, &slope);
    const float at_target = slope[0] * how.scale;
    for (int64_t c = 0; c < cols; c += LANES) {
        const vec share = vec_exp(logits_at(row, c, cols, how.softcap, &slope) - log_sum);
        store_some(row + c, share * slope * how.scale, cols - c);
    }
    row[target] -= at_target;
}

static void loss_task(void *arg, int task) {
    const struct loss_rows *l = arg;
    const int64_t end = smaller(l->n_rows, (task + 1) * l->rows);
    for (int64_t n = task * l->rows; n < end; n++) {
        float *row = l->logits + n * l->cols;
        const int32_t target = l->targets[n];
        assert(target < l->cols);
        l->loss[n] = 0;
        if (target < 0) {
            if (l->how.scale != 0.0f) memset(row, 0, (size_t)l->cols * sizeof *row);
            continue;
        }
        vec slope;
        const float max = row_max(row, l->cols, l->how.softcap);
        const double log_sum = (double)max + log(row_sum(row, l->cols, l->how.softcap, max));
        l->loss[n] = (float)(log_sum -
                             (double)capped(splat(row[target]), l->how.softcap, &slope)[0]);
        if (l->how.scale != 0.0f) row_back(row, l->cols, target, l->how, (float)log_sum);
    }
}

static strait_err cross_entropy(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_how how) {
    assert(loss.rows == logits.rows && targets.rows == logits.rows);
    struct loss_rows l = {.loss = strait_cpu_f32(loss),
                          .logits = strait_cpu_f32(logits),
                          .targets = strait_cpu_i32(targets),
                          .n_rows = logits.rows,
                          .cols = logits.cols,
                          .rows = task_rows(logits.cols),
                          .how = how};
    strait_pool_run(strait_cpu_pool(s), (int)pieces(l.n_rows, l.rows), loss_task, &l);
    return STRAIT_OK;
}

void SIMD(loss)(struct strait_kernels *k) {
    k->cross_entropy = cross_entropy;
}
