#include "train/report/step_details.h"

#include <assert.h>

/* The public header lists the kinds in the order of the simulator. */
static_assert((int)STRAIT_SPAN_GRADIENT == (int)STRAIT_SIM_GRADIENT, "kinds of spans must agree");

static strait_trainer_stage_step stage_of(const strait_executor_report *from, int i) {
    const strait_step_times *times = &from->times[i];
    return (strait_trainer_stage_step){.forward_s = times->forward,
                                       .backward_s = times->input + times->weights,
                                       .codec_s = times->codec,
                                       .wait_s = times->wait,
                                       .wall_s = times->wall,
                                       .forward_bytes = from->boundary_forward[i],
                                       .backward_bytes = from->boundary_backward[i]};
}

void strait_step_details_report(strait_step_details *details, const strait_executor_report *from,
                                int n_stages, strait_trainer_report *out) {
    const double *costs = from->limit.seconds;
    for (int i = 0; i < n_stages; i++)
        details->stages[i] = stage_of(from, i);
    const int n = from->limit.n_spans;
    out->n_spans = n < STRAIT_STEP_SPANS ? n : STRAIT_STEP_SPANS;
    for (int i = 0; i < out->n_spans; i++) {
        const strait_simulate_span *span = &from->spans[i];
        details->spans[i] = (strait_trainer_span){(strait_trainer_span_kind)span->what, span->stage,
                                                  span->microbatch, span->start_s, span->end_s};
    }
    out->n_stages = n_stages;
    out->stages = details->stages;
    out->spans = details->spans;
    out->costs = (strait_trainer_costs){.compute = costs[STRAIT_LIMIT_COMPUTE],
                                        .bubble = costs[STRAIT_LIMIT_BUBBLE],
                                        .serialisation = costs[STRAIT_LIMIT_SERIALISATION],
                                        .propagation = costs[STRAIT_LIMIT_PROPAGATION],
                                        .codec = costs[STRAIT_LIMIT_CODEC],
                                        .links = from->limit.links_s};
}
