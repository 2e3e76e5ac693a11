/* limits.h - measured times of stages and links, put before the planner (plan/). */
#pragma once

#include "config/run_plan.h"
#include "plan/pipe.h"
#include "plan/step_times.h"
#include "stage/runner.h"

/* One way over an emulated link, in seconds, with what jitter and loss add on average
 * (plan/delay.h) to messages of so many bytes that come every `pace_s`. */
double strait_limits_delay(const strait_run_plan *plan, double forward_bytes, double backward_bytes,
                           double pace_s);

/* Slots of each stage, from the times of one microbatch and the links' measured delays (0: unknown,
 * as the run file has it), and the tokens a second that a simulation expects of them. `wanted` sets
 * them instead; 0: choose. `spare` has the bytes left on the device of each stage, which has one
 * slot by then; NULL where stages compute on the host. */
strait_err strait_limits_windows(const strait_run_plan *plan, int wanted,
                                 const strait_step_times *times, const double *delays,
                                 const uint64_t *spare, int *windows, double *tokens_per_s);

/* What they will be as far as one can tell before anything was timed: on machines that are fast for
 * what they are, over links as the run file has them. */
strait_err strait_limits_expect(const strait_run_plan *plan, int wanted, int *windows);

/* Bytes of host memory that each stage takes for messages: the most that wait for a link or for
 * their move at once, in a simulated step or in a validation of `n_valid` microbatches, and what
 * its links keep on their way. `times` are of one microbatch; NULL: as strait_limits_expect has
 * them. All zero with one stage. */
strait_err strait_limits_messages(const strait_run *run, const strait_run_plan *plan,
                                  const int *windows, const strait_step_times *times,
                                  int64_t n_valid, size_t *out);

/* Seconds a step with these times and bytes would take on the meter of Protocol NanoGPT that the
 * recipe asks for, optimizer aside; 0 where it asks for none. */
double strait_limits_metered(const strait_run_plan *plan, const int *windows,
                             const strait_step_times *times, double forward_bytes,
                             double backward_bytes);

/* Lays the meter over the links of a pipeline: its wires, its rate, its delay. */
void strait_limits_lay_meter(const strait_run_plan *plan, strait_pipe *pipe,
                             strait_pipe_link *links);

/* What held a step up: "compute", "bubble", "serialisation", "propagation", "codec", or, unless all
 * there is to know of the links is in the recipe, "links": what stages and emulation do not explain
 * of the step outweighs all of these. Times and bytes are of the whole step. */
const char *strait_limits_name(const strait_run_plan *plan, const int *windows,
                               const strait_step_times *times, int knows_links,
                               double forward_bytes, double backward_bytes);
