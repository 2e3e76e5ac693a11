/* limits.h - feeds measured times of stages and links to the planner (plan/): how many microbatches
 * each stage should keep in flight, how much memory messages take, and what limits a step.
 *
 * All functions are pure: they keep nothing and may run on any thread. Arrays have one element per
 * stage of the plan and belong to the caller. */
#pragma once

#include "config/run_plan.h"
#include "plan/limit.h"
#include "plan/members.h"
#include "plan/pipe.h"
#include "plan/step_times.h"
#include "stage/runner.h"

/* One-way delay of an emulated link in seconds. It includes the average that jitter and loss add
 * (plan/delay.h) to messages of these sizes, sent every `pace_s` seconds. */
double strait_limits_delay(const strait_run_plan *plan, double forward_bytes, double backward_bytes,
                           double pace_s);

/* A run as the planner models it. `pipe` points into the others. */
struct strait_limits_pipeline {
    strait_pipe_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    strait_pipe pipe;
};

/* Describes a run to the planner; `times` are of `n` microbatches, the bytes are of one. */
void strait_limits_pipeline(const strait_run_plan *plan, const strait_step_times *times, double n,
                            double forward_bytes, double backward_bytes,
                            struct strait_limits_pipeline *out);

/* Chooses the window (slots) of each stage, and returns the tokens per second that a simulation
 * expects of them. `wanted` > 0 sets every window instead. `times` are of one microbatch; `delays`
 * are the measured one-way delays (0: not measured, use the run file). `spare` has the free bytes
 * on each stage's device while it holds one slot; NULL if stages compute on the host. */
strait_err strait_limits_windows(const strait_run_plan *plan, int wanted,
                                 const strait_step_times *times, const double *delays,
                                 const uint64_t *spare, int *windows, double *tokens_per_s);

/* With replicas the planner is given stages that are as much faster (times divided by the replicas)
 * and joined windows. But each replica holds the microbatches of a whole group at a time, and so
 * does each of its links in either direction: all stages up to it need more in flight. Widens
 * windows of such a plan and divides them among the replicas of each stage, up to `caps` (NULL: any
 * number). */
void strait_limits_widen(const strait_run_plan *plan, const int *caps, int *windows);

/* What the replicas of each stage have in flight together; returns `joined`. */
const int *strait_limits_join_windows(const strait_run_plan *plan, const int *windows,
                                      int joined[STRAIT_RUN_STAGES]);

/* Links that carry the crossings of a boundary at the same time: each replica of the side that has
 * more of them has one of its own. */
double strait_limits_links(const strait_run_plan *plan, int boundary);

/* Whether the planner must look at each replica: there are several of a stage, or their homes have
 * rates. Otherwise plan/simulate.h knows all. */
int strait_limits_needs_members(const strait_run_plan *plan);

/* Divides windows of stages among their replicas, as a start for strait_members_fit_windows. */
void strait_limits_divide_windows(const strait_run_plan *plan, int *windows);

/* The replicas of a run as plan/members.h takes them. */
typedef struct strait_limits_members {
    strait_members_spec spec; // points into the others
    strait_members_stage stages[STRAIT_RUN_STAGES];
    strait_pipe_link links[STRAIT_RUN_STAGES];
    strait_group_owners owners[STRAIT_RUN_STAGES];
} strait_limits_members;

/* Describes the replicas. `pipe` has stages as fast as all of their replicas together; `n_values`
 * are the gradients of each stage. Replicas have equal shares. Borrows the rates of the plan. */
void strait_limits_members_init(const strait_run_plan *plan, const strait_pipe *pipe,
                                const int *windows, const int64_t *n_values,
                                strait_limits_members *out);

/* Seconds that averages of weights (train.outer) add to a step of `step_s` seconds, as the mean
 * over an interval: what the steps that overlap do not hide of exchanges in which each replica
 * sends so many bytes (strait_runner_memory.averaged). */
double strait_limits_average_s(const strait_run_plan *plan, int stage,
                               strait_outer_bytes_sent bytes, double step_s);

/* Bits per second, as the mean over an interval, that two of n replicas send each other in each
 * direction for averages, where each sends so many bytes per exchange: what a relay carries of a
 * pair that meets there. */
double strait_limits_pair_bps(const strait_run_plan *plan, strait_outer_bytes_sent bytes, int n,
                              double step_s);

/* Estimates the windows before anything was measured: from assumed compute rates of fast machines
 * and the links of the run file. */
strait_err strait_limits_estimate_windows(const strait_run_plan *plan, int wanted, int *windows);

/* Estimates the bytes of host memory that each stage takes for messages: the most that wait at once
 * for a link or for their turn, in a simulated step or in a validation of `n_valid` microbatches,
 * plus what its emulated links hold in flight. `times` are of one microbatch; NULL: the assumptions
 * of strait_limits_estimate_windows. All zero with one stage. */
strait_err strait_limits_messages(const strait_run *run, const strait_run_plan *plan,
                                  const int *windows, const strait_step_times *times,
                                  int64_t n_valid, size_t *out);

/* Seconds that a step with these times and bytes would take on the metered links that the plan asks
 * for (as Protocol NanoGPT counts them), without the optimizer; 0 if the plan has no meter. */
double strait_limits_metered(const strait_run_plan *plan, const int *windows,
                             const strait_step_times *times, double forward_bytes,
                             double backward_bytes);

/* Replaces the links of a pipeline by metered ones, with the meter's rate and delay. `links` holds
 * one per boundary; the pipe borrows it. */
void strait_limits_apply_meter(const strait_run_plan *plan, strait_pipe *pipe,
                               strait_pipe_link *links);

/* Why a step took as long as it did. */
typedef struct strait_step_limit {
    /* What limited it: "compute", "bubble", "serialisation", "propagation" or "codec"; "links":
     * what stages and emulated links do not explain outweighs all of these; "reduction": so do the
     * sums of gradients over the replicas of a stage; "unknown": the simulation failed. Static. */
    const char *name;
    int where;                          // the stage or boundary concerned; -1: none
    double seconds[STRAIT_LIMIT_KINDS]; // that the step would be shorter without each cost
    double links_s;                     // that only links which are not emulated explain
    double reduction_s; // that replicas take longer than stages without (train/report)
    int n_spans;        // of `spans` below
} strait_step_limit;

/* The measured times and bytes of one step of all stages. */
typedef struct strait_step_measure {
    const int *windows;
    const strait_step_times *times; // per stage, of the whole step
    int knows_links;                // the plan describes the links completely
    double forward_bytes, backward_bytes;
} strait_step_measure;

/* Explains a step by simulating it. `spans` receives up to `capacity` spans of the simulated step,
 * by order of their start; NULL with 0: none. */
void strait_limits_explain(const strait_run_plan *plan, const strait_step_measure *measure,
                           strait_simulate_span *spans, int capacity, strait_step_limit *out);
