/* lr_schedule.h - the learning-rate schedule as a pure function of the step.
 *
 * The factor multiplies the learning rate of every parameter group. With s the step from 0:
 *
 *   s < warmup               (s + 1) / warmup
 *   from then to `steps`     1 - (1 - final) f(t)
 *   s >= steps               final
 *
 *   linear                   f(t) = t,                 t = (s - warmup) / (steps - warmup)
 *   cosine                   f(t) = (1 - cos(pi t)) / 2,   the same t
 *   constant, then decay     f(t) = t,                 t = max(0, (s - start) / (steps - start)),
 *                            start = max(warmup, steps - decay_steps)
 *
 * So linear with warmup 0 and final 0 is 1 - s / steps, and the last step of a run, steps - 1, is
 * still above `final`: no step has a learning rate of zero. */
#pragma once

#include "base/error.h"

#include <stdint.h>

typedef enum strait_lr_shape {
    STRAIT_LR_LINEAR,
    STRAIT_LR_COSINE,
    STRAIT_LR_CONSTANT, // constant until the last decay_steps, then linear
} strait_lr_shape;

typedef struct strait_lr_schedule {
    strait_lr_shape shape;
    int64_t steps;       // of the whole run
    int64_t warmup;      // steps
    int64_t decay_steps; // STRAIT_LR_CONSTANT only; 0: never decays
    float final;         // fraction of the full learning rate
} strait_lr_schedule;

/* STRAIT_ECONFIG when a count is negative, warm-up and decay do not fit into the steps, or final
 * is outside [0, 1]. */
strait_err strait_lr_schedule_check(const strait_lr_schedule *schedule);

/* The factor at `step`, from 0. Optimizers count from 1: their step n is step n - 1 here. */
float strait_lr_schedule_factor(const strait_lr_schedule *schedule, int64_t step);
