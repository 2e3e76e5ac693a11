/* residual_monitor.h - warns when a codec suddenly loses more than before.
 *
 * The residual is the relative error of a codec. It changes slowly during a run; a sudden rise
 * means that the model and its codec no longer fit each other. A warning is due when the residual,
 * averaged over about eight steps, exceeds
 *
 *     min(2 baseline, (1 + baseline) / 2)     twice the baseline, or half way to losing everything
 *     2 baseline                              if the baseline is 1 or more
 *
 * where `baseline` is the lowest such average since the tenth step. Residuals below 1e-5 are
 * rounding and never warn. After a warning the new level becomes the baseline, so that a lasting
 * rise warns once. Plain data; a resumed run starts anew. */
#pragma once

#include "codec/codec.h"
#include "config/run.h"

#include <stddef.h>

/* The state of one boundary in one direction. Zeroed is new. */
typedef struct strait_residual_monitor {
    double mean, baseline;
    int n_seen;
} strait_residual_monitor;

/* Adds the residual of a step. Returns the baseline if it was exceeded, otherwise 0. */
double strait_residual_monitor_watch(strait_residual_monitor *monitor, double residual);

/* All boundaries of a run, by direction. */
typedef struct strait_residual_monitors {
    strait_residual_monitor of[2][STRAIT_RUN_STAGES];
} strait_residual_monitors;

/* Adds the residuals of a step. Returns whether one rose, and describes in `text` which ones did.
 */
int strait_residual_monitors_watch(strait_residual_monitors *monitors,
                                   const double *const residuals[2], int n_boundaries, char *text,
                                   size_t capacity);
