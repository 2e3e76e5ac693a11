/* stage_times.h - how long the parts of a run take on this machine, found by trying them.
 *
 * One block, the head and a crossing of the codec are made, run a few times on zeros and thrown
 * away; the best time counts. Needs no data, and memory for two blocks and the head. */
#pragma once

#include "config/run_plan.h"
#include "plan/pipe.h"

typedef struct strait_stage_times {
    strait_pipe_stage block;  // one layer
    strait_pipe_stage sender; // final norm, head and loss
    double codec_s;           // one end of one crossing, both halves averaged
    char device[64];
} strait_stage_times;

/* Uses the device of the run. */
strait_err strait_stage_times_measure(const strait_run *run, const strait_run_plan *plan,
                                      strait_stage_times *out);

/* The same from a speed, in operations a second, for devices that are not here: forward a third of
 * the work of a microbatch, each half of the backward pass another. Codecs count with their
 * products. */
strait_err strait_stage_times_estimate(const strait_run_plan *plan, double flops_per_s,
                                       strait_stage_times *out);
