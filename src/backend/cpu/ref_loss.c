/* ref_loss.c - cross-entropy of logits; the gradient replaces the logits.
 *
 *   loss = lse(cap(l)) - cap(l_target),  d_l = (softmax(cap(l)) - onehot) cap'(l) scale */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* cap(l) = l / sqrt(1 + (l / c)^2): smooth, with slope 1 at 0 and limits of c and -c. */
static double capped(double logit, double cap) {
    return cap == 0 ? logit : logit / sqrt(1 + logit / cap * (logit / cap));
}

static double capped_slope(double logit, double cap) {
    return cap == 0 ? 1 : pow(1 + logit / cap * (logit / cap), -1.5);
}

/* The logarithm of the sum of the exponentials of the capped logits. */
static double log_sum(const float *logits, int64_t cols, double cap) {
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < cols; c++) {
        const double logit = capped((double)logits[c], cap);
        if (logit > max) max = logit;
    }
    for (int64_t c = 0; c < cols; c++)
        sum += exp(capped((double)logits[c], cap) - max);
    return max + log(sum);
}

static strait_err cross_entropy(struct strait_stream *s, strait_tensor loss, strait_tensor logits,
                                strait_tensor targets, strait_loss_params params) {
    (void)s;
    assert(loss.rows == logits.rows && targets.rows == logits.rows);
    const double cap = (double)params.softcap;
    const int64_t cols = logits.cols;
    for (int64_t n = 0; n < logits.rows; n++) {
        float *row = strait_cpu_f32(logits) + n * cols;
        const int32_t target = strait_cpu_i32(targets)[n];
        assert(target < cols);
        if (target < 0) {
            strait_cpu_f32(loss)[n] = 0;
            if (params.scale != 0.0f) memset(row, 0, (size_t)cols * sizeof *row);
            continue;
        }
        const double whole = log_sum(row, cols, cap);
        strait_cpu_f32(loss)[n] = (float)(whole - capped((double)row[target], cap));
        if (params.scale == 0.0f) continue;
        for (int64_t c = 0; c < cols; c++) {
            const double logit = (double)row[c];
            const double d = exp(capped(logit, cap) - whole) - (c == target);
            row[c] = (float)(d * capped_slope(logit, cap) * (double)params.scale);
        }
    }
    return STRAIT_OK;
}

void strait_ref_loss(struct strait_kernel_set *set) {
    set->base.cross_entropy = cross_entropy;
}
