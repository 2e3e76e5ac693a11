/* alarm.h - the residual of every boundary, watched from step to step.
 *
 * A codec loses about the same share of what it packs, step after step; a rise says that the model
 * and its codec have come apart. What counts as a rise: the residual, averaged over some eight
 * steps, passes
 *
 *     min(2 usual, (1 + usual) / 2)        twice the usual, or half way to losing everything
 *
 * where the usual is the lowest such average since the tenth step. Below 1e-5 all is rounding. A
 * level that raised an alarm is the usual one from then on, so that each alarm is news. Plain data;
 * a resumed run starts watching anew. */
#pragma once

#include "config/run.h"

#include "codec/codec.h"

#include <stddef.h>

/* One boundary in one direction; zeroed has seen nothing. */
typedef struct strait_residual_monitor {
    double mean, usual;
    int n_seen;
} strait_residual_monitor;

/* Takes the residual of a step. Returns the usual level that it has left, or 0. */
double strait_residual_monitor_watch(strait_residual_monitor *alarm, double residual);

/* All boundaries of a run, by direction. */
typedef struct strait_residual_monitors {
    strait_residual_monitor of[2][STRAIT_RUN_STAGES];
} strait_residual_monitors;

/* Takes the residuals of a step and puts words on those that rose into `text`, which is empty when
 * none did. Returns whether one did. */
int strait_residual_monitors_watch(strait_residual_monitors *alarms,
                                   const double *const residuals[2], int n_boundaries, char *text,
                                   size_t capacity);
