/* limits.h - measured times of stages and links, put before the planner (plan/). */
#pragma once

#include "pipeline/recipe.h"
#include "pipeline/worker.h"

/* Slots of each stage, from the times of one microbatch and the links' measured delays (0: unknown,
 * as the run file has it), and the tokens a second that a simulation expects of them. `wanted` sets
 * them instead; 0: choose. */
strait_err strait_limits_windows(const strait_recipe *recipe, int wanted,
                                 const strait_worker_times *times, const double *delays,
                                 int *windows, double *tokens_per_s);

/* What held a step up: "compute", "bubble", "serialisation", "propagation" or "codec". Times and
 * bytes are of the whole step. */
const char *strait_limits_name(const strait_recipe *recipe, const int *windows,
                               const strait_worker_times *times, double forward_bytes,
                               double backward_bytes);
