/* correction_monitor.h - says when codec subspace projects weights back to their subspace.
 *
 * Variant full keeps weights in the subspace by projecting gradients (form a of the paper). Where
 * more than leak_limit of the stream leaves it all the same, the weights of the stage are projected
 * after the next update, and a stage that needs it in every other step has become form b, which
 * projects always. Both are said once per boundary, so that a run does not change its form
 * unnoticed. Plain data; a resumed run starts anew. */
#pragma once

#include "config/run.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed is new. */
typedef struct strait_correction_monitor {
    double seen[STRAIT_RUN_STAGES];      // corrections of each boundary so far
    double leaks[STRAIT_RUN_STAGES];     // of the last step
    uint32_t history[STRAIT_RUN_STAGES]; // a bit per step: whether weights were projected
    int said[STRAIT_RUN_STAGES];         // 1: there was a correction; 2: they are the rule
    int is_started;
} strait_correction_monitor;

/* Adds a step: corrections of each boundary since the run began, and its leak. Returns whether
 * there is something to say, and appends it to `text`, which holds a string. */
int strait_correction_monitor_watch(strait_correction_monitor *monitor, const double *corrections,
                                    const double *leaks, int n_boundaries, char *text,
                                    size_t capacity);
