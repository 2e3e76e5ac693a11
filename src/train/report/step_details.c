#include "train/report/step_details.h"

#include <assert.h>
#include <math.h>

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

/* How long the step takes without the sums: as long as stages with one replica; where all have
 * several, as long as it was simulated. 0: not known. */
static double without_sums(const strait_run_plan *plan, const strait_step_measure *m,
                           const strait_simulate_span *spans, int n_spans) {
    double seconds = 0.0;
    for (int i = 0; i < plan->n_stages; i++)
        if (plan->replicas[i] == 1) seconds = fmax(seconds, m->times[i].wall);
    for (int i = 0; i < n_spans && spans != NULL && m->knows_links; i++)
        seconds = fmax(seconds, spans[i].end_s);
    return seconds;
}

void strait_step_details_reduction(const strait_run_plan *plan, const strait_step_measure *m,
                                   const strait_simulate_span *spans, strait_step_limit *limit) {
    const double seconds = without_sums(plan, m, spans, limit->n_spans);
    int where = -1;
    if (seconds <= 0.0 || strait_run_plan_has_outer(plan)) return;
    for (int i = 0; i < plan->n_stages; i++)
        if (plan->replicas[i] > 1 && m->times[i].wall - seconds > limit->reduction_s) {
            limit->reduction_s = m->times[i].wall - seconds;
            where = i;
        }
    limit->links_s = fmax(0.0, limit->links_s - limit->reduction_s); // which explain less then
    for (int i = 0; i < STRAIT_LIMIT_KINDS; i++)
        if (limit->seconds[i] > limit->reduction_s) return;
    if (where < 0 || limit->links_s > limit->reduction_s) return;
    limit->name = "reduction";
    limit->where = where;
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
                                        .links = from->limit.links_s,
                                        .reduction = from->limit.reduction_s};
}
