#include "plan/schedule.h"

#include <math.h>
#include <stddef.h>

const char *strait_schedule_name(strait_schedule_kind kind) {
    static const char *const names[] = {"fill-drain", "1f1b", "1f1b-window", "1f1b-split"};
    return names[kind];
}

const char *strait_schedule_action_name(strait_schedule_action_kind kind) {
    static const char *const names[] = {"forward", "backward", "input",
                                        "weights", "wait",     "finish"};
    return names[kind];
}

strait_err strait_schedule_check(const strait_schedule_spec *spec) {
    if (spec->n_stages < 1 || spec->stage < 0 || spec->stage >= spec->n_stages)
        return STRAIT_FAIL(STRAIT_EINVAL, "stage %d of %d does not exist: stages count from 0",
                           spec->stage, spec->n_stages);
    if (spec->n_microbatches < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "a step of %d microbatches: at least 1 is needed",
                           spec->n_microbatches);
    const int is_last = spec->stage == spec->n_stages - 1;
    const int least = spec->kind == STRAIT_SCHEDULE_FILL && !is_last ? spec->n_microbatches : 1;
    if (spec->window < least)
        return STRAIT_FAIL(STRAIT_EINVAL, "stage %d: a window of %d: %s needs at least %d",
                           spec->stage, spec->window, strait_schedule_name(spec->kind), least);
    return STRAIT_OK;
}

/* A single stage sends no gradient, so computing it early gains nothing. */
static int is_split(const strait_schedule_spec *spec) {
    return spec->kind == STRAIT_SCHEDULE_SPLIT && spec->n_stages > 1;
}

/* Fill-drain is the only schedule that holds back gradients that have arrived. */
static int can_backward(const strait_schedule_spec *spec, const strait_schedule_state *state) {
    if (spec->stage == spec->n_stages - 1) return state->n_backward < state->n_forward;
    if (spec->kind == STRAIT_SCHEDULE_FILL && state->n_forward < spec->n_microbatches) return 0;
    return state->n_backward < state->n_gradients;
}

/* A slot is free again only when the weight gradients are added, which still read its activations.
 */
static int can_forward(const strait_schedule_spec *spec, const strait_schedule_state *state) {
    const int n_inputs = spec->stage == 0 ? spec->n_microbatches + spec->n_ahead : state->n_inputs;
    return state->n_forward < n_inputs && state->n_forward - state->n_weights < spec->window;
}

strait_schedule_action strait_schedule_next(const strait_schedule_spec *spec,
                                            const strait_schedule_state *state) {
    if (state->n_weights == spec->n_microbatches)
        return (strait_schedule_action){STRAIT_ACTION_FINISH, -1};
    if (can_backward(spec, state))
        return (strait_schedule_action){
            is_split(spec) ? STRAIT_ACTION_INPUT : STRAIT_ACTION_BACKWARD, state->n_backward};
    const int is_ahead = state->n_forward >= spec->n_microbatches;
    if (can_forward(spec, state) && !is_ahead)
        return (strait_schedule_action){STRAIT_ACTION_FORWARD, state->n_forward};
    if (state->n_weights < state->n_backward)
        return (strait_schedule_action){STRAIT_ACTION_WEIGHTS, state->n_weights};
    if (can_forward(spec, state) && state->n_forward < spec->n_microbatches + spec->n_ahead)
        return (strait_schedule_action){STRAIT_ACTION_FORWARD, state->n_forward};
    return (strait_schedule_action){STRAIT_ACTION_WAIT, -1};
}

/* The previous stage may have no free slot before it gets a gradient, so that of two things that
 * are missing the gradient explains both: every stage returns one as soon as it can. Only with
 * fill-drain it comes after all inputs. */
int strait_schedule_awaited(const strait_schedule_spec *spec, const strait_schedule_state *state) {
    const int lacks_input = spec->stage > 0 && state->n_inputs <= state->n_forward &&
                            state->n_forward < spec->n_microbatches;
    const int lacks_gradient = spec->stage + 1 < spec->n_stages &&
                               spec->kind != STRAIT_SCHEDULE_FILL &&
                               state->n_gradients < state->n_forward;
    return lacks_input && !lacks_gradient ? -1 : 1;
}

/* A backward pass that is not split completes two of the counts at once. */
void strait_schedule_done(strait_schedule_state *state, strait_schedule_action action) {
    state->n_forward += action.kind == STRAIT_ACTION_FORWARD;
    state->n_backward += action.kind == STRAIT_ACTION_BACKWARD ||
                         action.kind == STRAIT_ACTION_INPUT;
    state->n_weights += action.kind == STRAIT_ACTION_BACKWARD ||
                        action.kind == STRAIT_ACTION_WEIGHTS;
}

int strait_schedule_slot(const strait_schedule_spec *spec, int microbatch) {
    /* Microbatches in flight are consecutive, also from one step to the next. */
    return (spec->first + microbatch) % spec->window;
}

int strait_schedule_leading(const unsigned char *arrived, int from, int n_microbatches) {
    while (from < n_microbatches && arrived[from])
        from++;
    return from;
}

strait_err strait_schedule_list(const strait_schedule_spec *spec, strait_schedule_action *actions,
                                int capacity, int *n_out) {
    STRAIT_TRY(strait_schedule_check(spec));
    strait_schedule_state state = {.n_inputs = spec->n_microbatches};
    for (int n = 0; n < capacity;) {
        const strait_schedule_action action = strait_schedule_next(spec, &state);
        if (action.kind == STRAIT_ACTION_WAIT) {
            state.n_gradients++;
            continue;
        }
        actions[n++] = action;
        strait_schedule_done(&state, action);
        if (action.kind == STRAIT_ACTION_FINISH) {
            *n_out = n;
            return STRAIT_OK;
        }
    }
    return STRAIT_FAIL(STRAIT_EINVAL, "a list of %d actions is too short for %d microbatches",
                       capacity, spec->n_microbatches);
}

static double longer(double a, double b) {
    return a > b ? a : b;
}

/* Seconds between microbatches in the steady state: the time of the slowest stage or wire. Wires
 * that several links share take longer than is counted here; the windows are then too large, not
 * too small. */
static double pace_s(const strait_pipe *pipe) {
    double pace = 0;
    for (int i = 0; i < pipe->n_stages; i++)
        pace = longer(pace, strait_pipe_work_s(pipe, i));
    for (int i = 0; i < pipe->n_stages - 1; i++)
        pace = longer(pace, longer(strait_pipe_forward_bits_s(pipe, i),
                                   strait_pipe_backward_bits_s(pipe, i)));
    return pace;
}

/* Slots that cover the time from the forward pass of a microbatch on a stage to its backward pass
 * there: one for each stage from this one on, since each computes a microbatch once per pace, and
 * for each link the microbatches that pass during its round trip. A gradient that returns over a
 * delay finds its stage in the middle of another action and waits for half a pace on average. */
static void measured_windows(const strait_pipe *pipe, int *windows) {
    const double pace = pace_s(pipe);
    double slots = 0;
    for (int i = pipe->n_stages - 1; i >= 0; i--) {
        slots += 1;
        if (i < pipe->n_stages - 1 && pace > 0) {
            const double away = (2 * pipe->links[i].delay_s + strait_pipe_forward_bits_s(pipe, i) +
                                 strait_pipe_backward_bits_s(pipe, i)) /
                                pace;
            slots += away + (away < 1 ? away : 1) / 2;
        }
        const double most = strait_pipe_in_flight(pipe, i);
        windows[i] = (int)(slots < most ? ceil(slots - 1e-9) : most);
    }
}

/* Windows never grow along the pipeline: a stage cannot have more in flight than the previous one.
 */
strait_err strait_schedule_windows(const strait_pipe *pipe, strait_schedule_kind kind,
                                   const int *caps, int *windows) {
    STRAIT_TRY(strait_pipe_check(pipe));
    const int n = pipe->n_stages;
    if (kind == STRAIT_SCHEDULE_WINDOW || kind == STRAIT_SCHEDULE_SPLIT)
        measured_windows(pipe, windows);
    for (int i = 0; i < n; i++) {
        if (kind == STRAIT_SCHEDULE_FILL) windows[i] = i < n - 1 ? pipe->n_microbatches : 1;
        if (kind == STRAIT_SCHEDULE_1F1B)
            windows[i] = n - i < strait_pipe_in_flight(pipe, i) ? n - i
                                                                : strait_pipe_in_flight(pipe, i);
        if (caps != NULL && caps[i] < 1)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "stage %d: its memory does not hold one microbatch; use a smaller "
                               "stages.microbatch or more "
                               "stages",
                               i);
        if (caps != NULL && caps[i] < windows[i]) {
            if (kind == STRAIT_SCHEDULE_FILL)
                return STRAIT_FAIL(
                    STRAIT_ECONFIG,
                    "stages.schedule fill-drain keeps %d microbatches on stage %d, but "
                    "only %d fit into memory: use 1f1b, or fewer microbatches",
                    windows[i], i, caps[i]);
            windows[i] = caps[i];
        }
        if (i > 0 && windows[i] > windows[i - 1]) windows[i] = windows[i - 1];
    }
    return STRAIT_OK;
}

/* A stage encodes and decodes in the thread that computes, so codec time is part of the action. */
double strait_schedule_action_s(const strait_pipe *pipe, int stage,
                                strait_schedule_action_kind kind) {
    const strait_pipe_stage *s = &pipe->stages[stage];
    switch (kind) {
    case STRAIT_ACTION_FORWARD: return s->forward_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_BACKWARD:
        return s->input_s + s->weights_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_INPUT: return s->input_s + strait_pipe_codec_s(pipe, stage);
    case STRAIT_ACTION_WEIGHTS: return s->weights_s;
    default: return 0;
    }
}
