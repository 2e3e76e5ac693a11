/* schedule.h - what a stage does next: pure functions of what has arrived and what is done.
 *
 * One rule, strait_schedule_next, implements every schedule. In order of preference:
 *
 *     the backward pass of the next microbatch, when its gradient has arrived
 *     the forward pass of the next one, when its input has arrived and a slot is free
 *     weight gradients that were deferred (split schedules)
 *     the forward pass of the next step, where that may begin (late updates)
 *     wait
 *
 * A stage is never idle when it could compute. The window bounds its memory: a microbatch holds one
 * of `window` slots from its forward pass until its weight gradients are added.
 *
 * The exact bits of a run depend on this order: on every stage, under every schedule, forward
 * passes, backward passes and weight gradients are each computed in the order of microbatches 0, 1,
 * 2, ... Sums over microbatches are therefore the same for every schedule, window, network and
 * number of stages. On the last stage, each forward pass is followed at once by its
 * own backward pass, because the gradient of the loss has one buffer; a single stage runs
 * forward 0, backward 0, forward 1, backward 1, ...
 *
 * docs/schedules.md has diagrams and measurements. */
#pragma once

#include "base/error.h"
#include "plan/pipe.h"

typedef enum strait_schedule_kind {
    STRAIT_SCHEDULE_FILL,   // "fill-drain": all forward, then all backward
    STRAIT_SCHEDULE_1F1B,   // "1f1b": as many in flight as stages follow, plus one
    STRAIT_SCHEDULE_WINDOW, // "1f1b-window": as many as cover the delays of links
    STRAIT_SCHEDULE_SPLIT,  // "1f1b-split": weight gradients also fill idle time
} strait_schedule_kind;

typedef enum strait_schedule_action_kind {
    STRAIT_ACTION_FORWARD,
    STRAIT_ACTION_BACKWARD, // gradients of the input and of the weights
    STRAIT_ACTION_INPUT,    // gradient of the input only, which is then sent
    STRAIT_ACTION_WEIGHTS,  // weight gradients that ACTION_INPUT deferred
    STRAIT_ACTION_WAIT,     // until something arrives
    STRAIT_ACTION_FINISH,   // all microbatches of the step are done
} strait_schedule_action_kind;

typedef struct strait_schedule_action {
    strait_schedule_action_kind kind;
    int microbatch; // for the first four; else -1
} strait_schedule_action;

/* Fixed for a step. */
typedef struct strait_schedule_spec {
    strait_schedule_kind kind;
    int n_stages, stage, n_microbatches;
    int window; // slots, at least 1
    /* Late updates (train.staleness 1): microbatches of the next step, which follow those of this
     * one, whose forward passes may begin; 0 on the last stage. */
    int n_ahead;
    int first; // microbatches before this step, modulo window: so that no two share a slot
} strait_schedule_spec;

/* Zeroed at the start of each step. Counts are of leading microbatches: n_inputs is 3 when the
 * inputs of 0, 1 and 2 have arrived but that of 3 has not, whether or not that of 4 has. */
typedef struct strait_schedule_state {
    int n_inputs;                         // arrived, of the next step too; the first needs none
    int n_gradients;                      // arrived; the last stage needs none
    int n_forward, n_backward, n_weights; // done
} strait_schedule_state;

/* Names of a schedule, as in stages.schedule, and of an action. */
const char *strait_schedule_name(strait_schedule_kind kind);
const char *strait_schedule_action_name(strait_schedule_action_kind kind);

/* STRAIT_EINVAL for a stage that does not exist, or a window that is too small for the schedule. */
strait_err strait_schedule_check(const strait_schedule_spec *spec);

/* The next action of a stage, for a spec that passed the check. */
strait_schedule_action strait_schedule_next(const strait_schedule_spec *spec,
                                            const strait_schedule_state *state);

/* Which neighbour a stage waits for that has no other action: -1 the previous one, 1 the next. A
 * worker that withholds something is found by following who waits for whom. */
int strait_schedule_awaited(const strait_schedule_spec *spec, const strait_schedule_state *state);

/* Seconds of an action on a device that the stage has alone, codecs included; 0 for waiting. */
double strait_schedule_action_s(const strait_pipe *pipe, int stage,
                                strait_schedule_action_kind kind);

/* Counts an action that strait_schedule_next returned as done. */
void strait_schedule_done(strait_schedule_state *state, strait_schedule_action action);

/* The slot of a microbatch, in [0, window). */
int strait_schedule_slot(const strait_schedule_spec *spec, int microbatch);

/* How many leading microbatches have arrived, given a flag for each and that `from` of them have:
 * turns arrivals in any order into n_inputs or n_gradients. */
int strait_schedule_leading(const unsigned char *arrived, int from, int n_microbatches);

/* The whole step of a stage as a list, for inputs that arrive early and gradients that arrive as
 * late as possible. Stages that follow such lists literally need windows that do not grow from
 * stage to stage. Writes at most `capacity` actions and their number to *n_out, which is at most
 * 3 n_microbatches + 1. STRAIT_EINVAL when they do not fit. */
strait_err strait_schedule_list(const strait_schedule_spec *spec, strait_schedule_action *actions,
                                int capacity, int *n_out);

/* The window of every stage, computed from the times of stages and links: enough microbatches in
 * flight to cover the way to the last stage and back at the pace of the slowest stage or wire.
 * window.h refines it by simulation. The result never grows from stage to stage and never exceeds
 * `caps`, the slots that fit into the memory of each stage (NULL: any number). STRAIT_ECONFIG when
 * fill-drain does not fit. */
strait_err strait_schedule_windows(const strait_pipe *pipe, strait_schedule_kind kind,
                                   const int *caps, int *windows);
