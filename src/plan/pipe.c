#include "plan/pipe.h"

#include <math.h>
#include <stddef.h>

/* The comparison is false for NaN too. One such time would end the simulation without an error. */
static int is_cost(double x) {
    return x >= 0 && isfinite(x);
}

/* Keeps the checks below to one line per stage and link. */
static int all_costs(const double *x, int n) {
    for (int i = 0; i < n; i++)
        if (!is_cost(x[i])) return 0;
    return 1;
}

/* Measured times may be NaN after a step that failed, so they are checked like user input. */
strait_err strait_pipe_check(const strait_pipe *pipe) {
    if (pipe->n_stages < 1 || pipe->n_microbatches < 1)
        return STRAIT_FAIL(STRAIT_EINVAL, "%d stages, %d microbatches: at least 1 of each",
                           pipe->n_stages, pipe->n_microbatches);
    for (int i = 0; i < pipe->n_stages; i++) {
        const strait_pipe_stage *s = &pipe->stages[i];
        const double costs[] = {s->forward_s, s->input_s, s->weights_s, s->update_s};
        if (!all_costs(costs, 4))
            return STRAIT_FAIL(STRAIT_EINVAL, "stage %d: a time is negative or not finite", i);
        if (pipe->devices != NULL && (pipe->devices[i] < 0 || pipe->devices[i] >= pipe->n_stages))
            return STRAIT_FAIL(STRAIT_EINVAL, "stage %d: there is no device %d", i,
                               pipe->devices[i]);
    }
    for (int i = 0; i < pipe->n_stages - 1; i++) {
        const strait_pipe_link *l = &pipe->links[i];
        const double costs[] = {l->forward_bytes, l->backward_bytes, l->forward_bps,
                                l->backward_bps,  l->delay_s,        l->codec_s};
        if (!all_costs(costs, 6))
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "link of stages %d and %d: a cost is negative or not finite", i,
                               i + 1);
    }
    if (!is_cost(pipe->control_s))
        return STRAIT_FAIL(STRAIT_EINVAL, "the delay to the coordinator is negative or not finite");
    if (!is_cost(pipe->at_once))
        return STRAIT_FAIL(STRAIT_EINVAL, "the share of a device is negative or not finite");
    return STRAIT_OK;
}

int strait_pipe_steps(const strait_pipe *pipe, int n) {
    return pipe->staleness > 0 ? 5 : n;
}

int strait_pipe_in_flight(const strait_pipe *pipe, int stage) {
    const int is_late = pipe->staleness > 0 && stage < pipe->n_stages - pipe->n_prompt;
    return pipe->n_microbatches * (1 + is_late);
}

/* A stage in the middle of the pipeline has a codec on both sides, the first and last on one. */
double strait_pipe_codec_s(const strait_pipe *pipe, int stage) {
    return (stage > 0 ? pipe->links[stage - 1].codec_s : 0) +
           (stage < pipe->n_stages - 1 ? pipe->links[stage].codec_s : 0);
}

double strait_pipe_speed(const strait_pipe *pipe, int n_busy) {
    return pipe->at_once > 0 && n_busy > pipe->at_once ? pipe->at_once / n_busy : 1.0;
}

int strait_pipe_wire_of(const strait_pipe *pipe, int stage, int is_gradient) {
    switch (pipe->wire) {
    case STRAIT_WIRE_UPLINK: return stage;
    case STRAIT_WIRE_METER: return is_gradient ? stage - 1 : stage + 1;
    default: return 2 * stage + is_gradient;
    }
}

/* A bandwidth of 0 means unlimited, not that nothing ever arrives. */
static double bits_s(double bytes, double bps) {
    return bps > 0 ? bytes * 8 / bps : 0;
}

double strait_pipe_forward_bits_s(const strait_pipe *pipe, int link) {
    return bits_s(pipe->links[link].forward_bytes, pipe->links[link].forward_bps);
}

double strait_pipe_backward_bits_s(const strait_pipe *pipe, int link) {
    return bits_s(pipe->links[link].backward_bytes, pipe->links[link].backward_bps);
}

/* Codecs count twice, because a microbatch crosses each link forward and backward. */
double strait_pipe_work_s(const strait_pipe *pipe, int stage) {
    const strait_pipe_stage *s = &pipe->stages[stage];
    return s->forward_s + s->input_s + s->weights_s + 2 * strait_pipe_codec_s(pipe, stage);
}
