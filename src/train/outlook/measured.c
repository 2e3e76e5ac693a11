#include "train/outlook/measured.h"

#include "train/outlook/stage_times.h"

#include <math.h>

static const double least_bps = 16e3;     // a link that carried nothing
static const double unknown_flops = 1e10; // where no stage tells a time

/* Operations of a microbatch in one stage: those of its layers, and of the head in the last. */
static double stage_flops(const strait_run_plan *plan, const strait_stage_times *at_one,
                          int stage) {
    const strait_layer_range part = plan->stage_layers[stage];
    const strait_pipe_stage *b = &at_one->block, *e = &at_one->head;
    const double head = stage == plan->n_stages - 1 ? e->forward_s + e->input_s + e->weights_s
                                                    : 0.0;
    return (part.last - part.first) * (b->forward_s + b->input_s + b->weights_s) + head;
}

/* Of the positive ones; 0: there is none. */
static double median(const double *values, int n) {
    double sorted[STRAIT_RUN_STAGES];
    int n_sorted = 0;
    for (int i = 0; i < n; i++) {
        int at = n_sorted;
        if (!(values[i] > 0.0)) continue;
        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
        n_sorted++;
    }
    return n_sorted > 0 ? sorted[n_sorted / 2] : 0.0;
}

strait_err strait_measured_set_speeds(const strait_run_plan *plan, const double *batch_s,
                                      strait_measured *out) {
    strait_stage_times at_one;
    STRAIT_TRY(strait_stage_times_estimate(plan, 1.0, &at_one));
    for (int i = 0; i < plan->n_stages; i++)
        out->flops_per_s[i] = batch_s[i] > 0.0 ? stage_flops(plan, &at_one, i) / batch_s[i] : 0.0;
    const double usual = median(out->flops_per_s, plan->n_stages);
    for (int i = 0; i < plan->n_stages; i++)
        if (!(out->flops_per_s[i] > 0.0)) out->flops_per_s[i] = usual > 0.0 ? usual : unknown_flops;
    return STRAIT_OK;
}

double strait_measured_rate(const strait_measured *m, int boundary) {
    const double forward = m->forward_bps[boundary], backward = m->backward_bps[boundary];
    return forward > 0.0 && (!(backward > 0.0) || forward < backward) ? forward : backward;
}

int strait_measured_has_limits(const strait_measured *m, int n_stages) {
    for (int i = 0; i + 1 < n_stages; i++)
        if (strait_measured_rate(m, i) > 0.0) return 1;
    return 0;
}

/* The run's record then has the very rate that the choice was made for. */
static double round_rate(double bps) {
    const double unit = pow(10.0, floor(log10(bps)) - 2.0);
    return round(bps / unit) * unit;
}

double strait_measured_judge(double received_bps, double acknowledged_bps, int *differ) {
    const double most = fmax(received_bps, acknowledged_bps);
    const double least = fmin(received_bps, acknowledged_bps);
    *differ = most > least_bps && least < most / 4.0;
    return round_rate(fmax(most, least_bps));
}
