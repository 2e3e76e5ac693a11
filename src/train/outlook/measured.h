/* measured.h - stages and links as the workers of a swarm have measured them, for runs whose file
 * gives no rates.
 *
 * All links are measured at the same time, so a rate is what a link carries while all others are
 * busy too: what shares a wire has its part of it. */
#pragma once

#include "config/run_plan.h"

typedef struct strait_measured {
    double flops_per_s[STRAIT_RUN_STAGES]; // of each stage, as the planner counts its work
    /* Of each boundary: bits per second of activations and of gradients, and seconds one way. A
     * rate of 0: no limit is known. */
    double forward_bps[STRAIT_RUN_STAGES], backward_bps[STRAIT_RUN_STAGES];
    double delay_s[STRAIT_RUN_STAGES];
} strait_measured;

/* Fills in the speeds: `batch_s` are seconds that a stage of this plan computes a microbatch. A
 * stage that reports no time counts like the median of the others. */
strait_err strait_measured_set_speeds(const strait_run_plan *plan, const double *batch_s,
                                      strait_measured *out);

/* The rate of a boundary's slower direction; 0: no limit is known. */
double strait_measured_rate(const strait_measured *measured, int boundary);

/* Whether a link has a limit. */
int strait_measured_has_limits(const strait_measured *measured, int n_stages);

/* The rate of one direction as both of its ends report it: the larger of the two, at least 16
 * kbit/s, of three significant digits. A worker that claims to be slow changes nothing while the
 * other end is honest; one that wants a run to be slow need not lie. *differ: by more than a factor
 * of four, which delays on the way of acknowledgements do not explain. */
double strait_measured_judge(double received_bps, double acknowledged_bps, int *differ);
