/* limits_members.c - the replicas of a run, for the planner. */
#include "net/core/frame.h"
#include "stage/limits.h"
#include "stage/replicas/quantize.h"

#include <math.h>

/* Late updates are known to plan/simulate.h only. */
int strait_limits_needs_members(const strait_run_plan *plan) {
    if (plan->staleness > 0) return 0;
    for (int i = 0; i < plan->n_members; i++)
        if (plan->up_bps[i] > 0 || plan->down_bps[i] > 0) return 1;
    return plan->n_members > plan->n_stages;
}

void strait_limits_divide_windows(const strait_run_plan *plan, int *windows) {
    for (int i = 0; i < plan->n_stages; i++)
        windows[i] = (windows[i] + plan->replicas[i] - 1) / plan->replicas[i];
}

/* Packets have headers, also those of gradients. With outer averaging no gradients are summed. */
static double gradient_bytes(const strait_run_plan *plan, int64_t n_values) {
    if (strait_run_plan_has_outer(plan)) return 0.0;
    return (double)strait_quantized_bytes(plan->reduce_bits, n_values) *
           (STRAIT_PACKET_PAYLOAD + STRAIT_PACKET_HEADERS) / STRAIT_PACKET_PAYLOAD;
}

void strait_limits_members_init(const strait_run_plan *plan, const strait_pipe *pipe,
                                const int *windows, const int64_t *n_values,
                                strait_limits_members *out) {
    for (int i = 0; i < plan->n_stages; i++) {
        const int n = plan->replicas[i];
        strait_pipe_stage cost = pipe->stages[i];
        cost.forward_s *= n;
        cost.input_s *= n;
        cost.weights_s *= n;
        out->stages[i] = (strait_members_stage){
            .cost = cost,
            .n_replicas = n,
            .window = windows[i],
            .gradient_bytes = gradient_bytes(plan, n_values[i])};
        strait_groups_share(&plan->groups, n, NULL, &out->owners[i]);
        if (i + 1 == plan->n_stages) break;
        out->links[i] = pipe->links[i];
        out->links[i].forward_bps = out->links[i].backward_bps = plan->emulate.rate_bps;
    }
    out->spec = (strait_members_spec){.kind = plan->schedule,
                                      .n_stages = plan->n_stages,
                                      .stages = out->stages,
                                      .links = out->links,
                                      .groups = plan->groups,
                                      .owners = out->owners,
                                      .sums_pairwise = plan->sums_pairwise,
                                      .up_bps = plan->up_bps,
                                      .down_bps = plan->down_bps,
                                      .control_s = pipe->control_s};
}

/* The narrower wire of the narrowest home of a stage, in bits per second; 0: none is limited. */
static double narrowest_bps(const strait_run_plan *plan, int stage) {
    const int first = strait_run_plan_member(plan, stage, 0);
    double least = INFINITY;
    for (int i = first; i < first + plan->replicas[stage]; i++) {
        if (plan->up_bps[i] > 0) least = fmin(least, plan->up_bps[i]);
        if (plan->down_bps[i] > 0) least = fmin(least, plan->down_bps[i]);
    }
    return isfinite(least) ? least : 0.0;
}

/* Every replica sends to all others at once, and gets as much; parts travel one behind the other,
 * so that the delay counts twice: to the owner of a part and back. */
static double exchange_s(const strait_run_plan *plan, int stage, double bytes) {
    const double others = plan->replicas[stage] - 1, home_bps = narrowest_bps(plan, stage);
    const double link_bps = plan->emulate.rate_bps * others;
    const double link_s = link_bps > 0 ? 8.0 * bytes / link_bps : 0.0;
    const double home_s = home_bps > 0 ? 8.0 * bytes / home_bps : 0.0;
    return others < 1 ? 0.0 : fmax(link_s, home_s) + 2e-9 * (double)plan->emulate.delay_ns;
}

double strait_limits_average_s(const strait_run_plan *plan, int stage,
                               strait_outer_bytes_sent bytes, double step_s) {
    const strait_outer_schedule *s = &plan->outer.schedule;
    const int has_attention = s->attention_every > 0;
    const double fragments_s = exchange_s(plan, stage, bytes.fragment) * s->fragments;
    const double attention_s = has_attention ? exchange_s(plan, stage, bytes.attention) : 0.0;
    const double shown_s = fmax(0.0, fragments_s - s->overlap * s->fragments * step_s);
    const double warmup = strait_outer_warmup_share(s); // nothing overlaps there
    const double later_s = shown_s / (double)s->sync_every +
                           (has_attention ? attention_s / (double)s->attention_every : 0.0);
    return warmup * (fragments_s + attention_s) + (1.0 - warmup) * later_s;
}

double strait_limits_pair_bps(const strait_run_plan *plan, strait_outer_bytes_sent bytes, int n,
                              double step_s) {
    if (n < 2 || !(step_s > 0.0)) return 0.0;
    return 8.0 * strait_outer_step_bytes(&plan->outer.schedule, bytes) / (n - 1) / step_s;
}
