/* planned.h - how long a step of a run would take over other links, simulated as `strait plan` does
 * it. Any thread; nothing is kept between calls. */
#pragma once

#include "config/run.h"

#include <jansson.h>

typedef struct strait_planned_case {
    double bps, delay_s; // of every link, in each direction
    double flops_per_s;  // of every stage, which is a machine of its own
    int stages;          // 0: those of the run
    int tries_sizes;     // take the fastest of several microbatch sizes, with windows that fit
} strait_planned_case;

typedef struct strait_planned {
    double seconds;       // of a step over full-duplex links
    double meter_seconds; // on the link meter of Protocol NanoGPT (docs/schedules.md)
} strait_planned;

/* The codec and the model stay those of the run. The vocabulary is read from its data, where
 * model.vocab is 0. STRAIT_ECONFIG: the run cannot be cut into so many stages. */
strait_err strait_planned_step(const strait_run *run, const strait_planned_case *at,
                               strait_planned *out);

/* The validation curve of a run's record over planned time: x has steps times `seconds`, y losses,
 * NaN where there is none. Returns the number of points, at most `max`. */
int strait_planned_curve(const json_t *record, double seconds, int max, double *x, double *y);
