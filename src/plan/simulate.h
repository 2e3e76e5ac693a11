/* simulate.h - discrete-event simulation of one or more steps of a pipeline.
 *
 * Every stage follows strait_schedule_next; its links decide when inputs and gradients arrive. A
 * link puts bits on its wire one message at a time and delivers a message `delay_s` after its last
 * bit. A stage computes one action at a time, codecs included. A split backward pass sends its
 * gradient after the gradient of the input, any other pass at its end. At the end of a step a stage
 * updates its weights and begins the next step; with `clips` the update waits until the norms of
 * all stages have gone to the coordinator and their sum has come back. With `staleness` a stage may
 * begin a step as soon as it has applied the update before the last: see docs/staleness.md. Stages
 * on one device (`at_once`) slow each other down only while they compute; busy_s and the ends of
 * spans are then those of a stage that has its device alone.
 *
 * The simulation is deterministic: equal inputs give equal results, bit for bit. */
#pragma once

#include "plan/schedule.h"

typedef enum strait_simulate_what {
    STRAIT_SIM_FORWARD,
    STRAIT_SIM_BACKWARD,
    STRAIT_SIM_INPUT,
    STRAIT_SIM_WEIGHTS,
    STRAIT_SIM_UPDATE,
    STRAIT_SIM_ACTIVATION, // from `stage` to the next one, from first bit to arrival
    STRAIT_SIM_GRADIENT,   // from `stage` to the previous one
} strait_simulate_what;

typedef struct strait_simulate_span {
    strait_simulate_what what;
    int stage, step, microbatch; // microbatch is -1 for an update
    double start_s, end_s;
} strait_simulate_span;

typedef struct strait_simulate_params {
    strait_schedule_kind kind;
    const int *windows;          // per stage: strait_schedule_windows
    int n_steps;                 // at least 1; with more, `seconds` excludes the first ones
    strait_simulate_span *spans; // memory of the caller, filled by order of start; or NULL
    int capacity;                // of spans; those beyond it are counted, not kept
} strait_simulate_params;

/* One stage, over all steps. */
typedef struct strait_simulate_stage {
    double busy_s;
    double bubble;        // share of the time in which it was idle
    int most_in_flight;   // most slots in use at once
    int most_out[2];      // most activations, gradients at once that are not yet sent
    int most_in[2];       // most at once that have arrived and that no action has used yet
    int most_messages;    // most of all of these together
    double activations_s; // time its wires were busy with activations, with gradients
    double gradients_s;
} strait_simulate_stage;

typedef struct strait_simulate_result {
    double seconds;      // per step; in the steady state where n_steps > 1
    double tokens_per_s; // 0 where microbatch_tokens is 0
    double bubble;       // mean over stages
    int n_spans;
} strait_simulate_result;

/* Simulates params->n_steps steps. `stages` receives one entry per stage, or is NULL. STRAIT_EINVAL
 * names the invalid number. Memory is allocated for the call only. */
strait_err strait_simulate(const strait_pipe *pipe, const strait_simulate_params *params,
                           strait_simulate_stage *stages, strait_simulate_result *out);
