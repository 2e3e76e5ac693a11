/* shares.h - how the replicas of a stage share its groups, and their times as one. Pure functions.
 */
#pragma once

#include "config/run_plan.h"
#include "plan/step_times.h"

/* Gives every replica groups in proportion to its speed: that of stages.speeds, or that of `times`
 * of one microbatch, by member, or of the home that it crosses if that takes longer, unless they
 * differ by less than noise; NULL: all are equal. Without a run no speeds are given. `out` has one
 * entry per stage. Shares change how long a step takes, never its result; where they would (on
 * GPUs, and with rounded gradients), measured times are not used, so that a run can be repeated. */
void strait_shares_choose(const strait_run *run, const strait_run_plan *plan,
                          const strait_step_times *times, strait_group_owners *out);

/* The mean of the times of n replicas, divided by `share`: 1 where each has computed a part of the
 * step, n where each has computed the same and they would share it. */
strait_step_times strait_shares_mean(const strait_step_times *times, int n, int share);
