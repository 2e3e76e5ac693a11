/* limit.h - the bottleneck of a pipeline, and how much each cost contributes.
 *
 * The step is simulated again with one cost removed; the seconds this saves are the weight of that
 * cost:
 *
 *     codec           packing and unpacking are free
 *     serialisation   bits take no time to put on a wire
 *     propagation     delays are zero
 *     compute, bubble stages take no time; the saving is divided between the two in proportion to
 * the work and the waiting in a step of the same pipeline with perfect links
 *
 * The largest weight is the limit. A cost that is overlapped by others has weight 0, and two costs
 * that overlap each other (a wire exactly as slow as the stages) both have small weights, so the
 * weights need not add up to the step. */
#pragma once

#include "plan/simulate.h"

typedef enum strait_limit_kind {
    STRAIT_LIMIT_COMPUTE,
    STRAIT_LIMIT_BUBBLE,
    STRAIT_LIMIT_SERIALISATION,
    STRAIT_LIMIT_PROPAGATION,
    STRAIT_LIMIT_CODEC,
    STRAIT_LIMIT_KINDS,
} strait_limit_kind;

typedef struct strait_limit {
    strait_limit_kind kind;
    int where;                        // the stage with most work, or the slowest link; -1: none
    double saved[STRAIT_LIMIT_KINDS]; // weights, in seconds per step
} strait_limit;

/* The name of a limit, such as "bubble". */
const char *strait_limit_name(strait_limit_kind kind);

/* Finds the limit by up to six simulations; params->spans is not written. Errors as
 * strait_simulate. */
strait_err strait_limit_find(const strait_pipe *pipe, const strait_simulate_params *params,
                             strait_limit *out);

/* Whether the wires are off the critical path: a step takes at most 3% longer than the same step at
 * infinite rate. */
int strait_limit_is_off_path(double seconds, double infinite_s);
