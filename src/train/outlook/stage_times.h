/* stage_times.h - how long the parts of a run take on this machine, measured or estimated.
 *
 * Measuring allocates one block, the head and one boundary in turn and runs each a few times on
 * zeros; the best time counts. It needs no data, and memory for two blocks and the head. */
#pragma once

#include "config/run_plan.h"
#include "plan/pipe.h"

typedef struct strait_stage_times {
    strait_pipe_stage block; // one layer
    strait_pipe_stage head;  // final norm, language-model head and loss
    double codec_s;          // one side of a boundary crossing, sender and receiver averaged
    char device[64];
} strait_stage_times;

/* Measures on the device of the run. */
strait_err strait_stage_times_measure(const strait_run *run, const strait_run_plan *plan,
                                      strait_stage_times *out);

/* Measures codec_s alone, for another codec of the same model. */
strait_err strait_stage_times_measure_codec(const strait_run *run, const strait_run_plan *plan,
                                            strait_stage_times *times);

/* Multiplies all times, for stages that share their device with others. */
void strait_stage_times_scale(strait_stage_times *times, double factor);

/* Estimates from a speed in operations per second, for devices that are not present: a third of the
 * work of a microbatch for the forward pass, for input gradients and for weight gradients each.
 * Codecs count with their matrix products. */
strait_err strait_stage_times_estimate(const strait_run_plan *plan, double flops_per_s,
                                       strait_stage_times *out);
