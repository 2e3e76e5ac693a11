/* simulate.h - one or more steps of a pipeline, played out in simulated time.
 *
 * Every stage plays strait_schedule_next against the arrivals that its links give it. A link puts
 * bits on its wire one message at a time and delivers them `delay_s` after the last bit. A stage
 * computes one move at a time; the codecs of its boundaries are part of the move. The gradient of
 * a split backward pass goes on the wire at the end of its first half, any other at the end of the
 * whole pass. At the end of a step a stage updates its weights, with `clips` only after the norms
 * of all stages have gone to the coordinator and their sum has come back, and goes on to the next.
 *
 * Exact and deterministic: the same numbers in, the same numbers out. */
#pragma once

#include "plan/schedule.h"

typedef enum strait_simulate_what {
    STRAIT_SIM_FORWARD,
    STRAIT_SIM_BACKWARD,
    STRAIT_SIM_INPUT,
    STRAIT_SIM_WEIGHTS,
    STRAIT_SIM_UPDATE,
    STRAIT_SIM_ACTIVATION, // on its way from `stage` to the next, from first bit to arrival
    STRAIT_SIM_GRADIENT,   // on its way from `stage` to the one before
} strait_simulate_what;

typedef struct strait_simulate_span {
    strait_simulate_what what;
    int stage, step, microbatch; // microbatch is -1 for an update
    double start_s, end_s;
} strait_simulate_span;

typedef struct strait_simulate_params {
    strait_schedule_kind kind;
    const int *windows;          // one a stage: strait_schedule_windows
    int n_steps;                 // at least 1; with more, `seconds` leaves out the first
    strait_simulate_span *spans; // the caller's, in the order of their starts; or NULL
    int capacity;                // how many fit; the rest are counted, not kept
} strait_simulate_params;

/* One stage, over all steps. */
typedef struct strait_simulate_stage {
    double busy_s;
    double bubble;        // share of the time in which it did not compute
    int most_in_flight;   // slots in use at once
    int most_out[2];      // activations, gradients packed and not yet whole on the wire, at once
    int most_in[2];       // arrived and not yet taken up by a move
    int most_messages;    // all of these together
    double activations_s; // its wires were busy with bits of either kind this long
    double gradients_s;
} strait_simulate_stage;

typedef struct strait_simulate_result {
    double seconds;      // of a step, once in the swing of it
    double tokens_per_s; // 0 without microbatch_tokens
    double bubble;       // mean over stages
    int n_spans;
} strait_simulate_result;

/* `stages` receives one entry a stage, or is NULL. STRAIT_EINVAL names numbers that make no sense.
 * Allocates while it runs and keeps nothing. */
strait_err strait_simulate(const strait_pipe *pipe, const strait_simulate_params *how,
                           strait_simulate_stage *stages, strait_simulate_result *out);
