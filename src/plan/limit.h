/* limit.h - what holds a pipeline back, and by how much.
 *
 * The step is simulated again with one cost taken away, and the seconds that saves are the weight
 * of that cost:
 *
 *     codec           packing and unpacking are free
 *     serialisation   bits take no time to put on a wire
 *     propagation     delays are zero
 *     compute, bubble stages take no time at all; what that saves is shared between the two as work
 *                     and waiting share a step of the same pipeline with perfect links
 *
 * The largest is the limit. Costs that hide behind others weigh nothing, and two that each hide the
 * other (a wire exactly as slow as the stages) both weigh little: weights need not add up. */
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
    int where;                        // the stage with most work, or the slowest link; -1: nowhere
    double saved[STRAIT_LIMIT_KINDS]; // seconds of a step
} strait_limit;

const char *strait_limit_name(strait_limit_kind kind);

/* Simulates up to six times; how->spans is not written. */
strait_err strait_limit_find(const strait_pipe *pipe, const strait_simulate_params *how,
                             strait_limit *out);
