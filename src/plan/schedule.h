/* schedule.h - what a stage does next: pure functions of what has arrived and what is done.
 *
 * One rule, strait_schedule_next, makes every schedule. In order of preference:
 *
 *     the backward pass of the next microbatch, when its gradient is here
 *     the forward pass of the next one, when its input is here and a slot is free
 *     gradients of weights that were left for later (split schedules)
 *     wait
 *
 * so a stage computes whenever it may. Memory is bounded by the window: a microbatch holds one of
 * `window` slots from its forward pass until the gradients of its weights are added.
 *
 * Order, which the exact bits of a run rest on: on every stage, under every schedule, forward
 * passes, backward passes and gradients of weights each happen in the order of microbatches 0, 1,
 * 2, ... Sums over microbatches are therefore the same sums, whatever the schedule, the window, the
 * network or the number of stages. On the last stage, each forward pass is followed at once by its
 * own backward pass, since the gradient of the loss lives in one buffer; one stage alone runs
 * forward 0, backward 0, forward 1, backward 1, ...
 *
 * docs/schedules.md has the pictures and the figures. */
#pragma once

#include "base/error.h"
#include "plan/pipe.h"

typedef enum strait_schedule_kind {
    STRAIT_SCHEDULE_FILL,   // "fill-drain": all forward, then all backward
    STRAIT_SCHEDULE_1F1B,   // "1f1b": as many in flight as there are stages ahead
    STRAIT_SCHEDULE_WINDOW, // "1f1b-window": as many as the links' delays ask for
    STRAIT_SCHEDULE_SPLIT,  // "1f1b-split": and gradients of weights fill the waits
} strait_schedule_kind;

typedef enum strait_schedule_action_kind {
    STRAIT_ACTION_FORWARD,
    STRAIT_ACTION_BACKWARD, // both halves at once
    STRAIT_ACTION_INPUT,    // down to the input's gradient, which is then sent
    STRAIT_ACTION_WEIGHTS,  // gradients of the weights, left over by the move above
    STRAIT_ACTION_WAIT,     // until something arrives
    STRAIT_ACTION_FINISH,   // all microbatches of the step are done
} strait_schedule_action_kind;

typedef struct strait_schedule_action {
    strait_schedule_action_kind kind;
    int microbatch; // of the first four
} strait_schedule_action;

/* Fixed for a step. */
typedef struct strait_schedule_spec {
    strait_schedule_kind kind;
    int n_stages, stage, n_microbatches;
    int window; // slots, at least 1
} strait_schedule_spec;

/* Zeroed at the start of each step. Counts are of leading microbatches: n_inputs is 3 when the
 * inputs of 0, 1 and 2 are here, whether or not that of 4 is. */
typedef struct strait_schedule_state {
    int n_inputs;                         // arrived; the first stage needs none
    int n_gradients;                      // arrived; the last stage needs none
    int n_forward, n_backward, n_weights; // done
} strait_schedule_state;

const char *strait_schedule_name(strait_schedule_kind kind);
const char *strait_schedule_action_name(strait_schedule_action_kind kind);

/* STRAIT_EINVAL names what does not fit. */
strait_err strait_schedule_check(const strait_schedule_spec *spec);

/* The next move, for a spec that passed the check. */
strait_schedule_action strait_schedule_next(const strait_schedule_spec *spec,
                                            const strait_schedule_state *state);

/* Counts a move that next() asked for as done. */
void strait_schedule_done(strait_schedule_state *state, strait_schedule_action move);

/* The slot of a microbatch, in [0, window). */
int strait_schedule_slot(const strait_schedule_spec *spec, int microbatch);

/* How many leading microbatches have arrived, given a flag for each and that `from` of them have:
 * turns arrivals in any order into n_inputs or n_gradients. */
int strait_schedule_leading(const unsigned char *arrived, int from, int n_microbatches);

/* The whole step of a stage as a list, when inputs come early and gradients as late as they can.
 * Stages that play such lists to the letter need windows that do not grow from stage to stage.
 * Writes at most `room` moves, and how many there are to *n_out: no more than 3 n_microbatches + 1.
 * STRAIT_EINVAL when they do not fit. */
strait_err strait_schedule_list(const strait_schedule_spec *spec, strait_schedule_action *moves,
                                int capacity, int *n_out);

/* The window of every stage, from the times of stages and links: enough microbatches in flight to
 * cover the way to the last stage and back at the pace of the slowest stage or wire, without
 * simulating (window.h does). Never grows from stage to stage, nor above `caps`, the slots that fit
 * into each stage's memory (NULL: any number). STRAIT_ECONFIG when fill-drain does not fit. */
strait_err strait_schedule_windows(const strait_pipe *pipe, strait_schedule_kind kind,
                                   const int *caps, int *windows);
