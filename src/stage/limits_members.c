/* limits_members.c - the replicas of a run, for the planner. */
#include "net/core/frame.h"
#include "stage/limits.h"
#include "stage/replicas/quantize.h"

int strait_limits_needs_members(const strait_run_plan *plan) {
    for (int i = 0; i < plan->n_members; i++)
        if (plan->up_bps[i] > 0 || plan->down_bps[i] > 0) return 1;
    return plan->n_members > plan->n_stages;
}

/* Packets have headers, also those of gradients. */
static double gradient_bytes(const strait_run_plan *plan, int64_t n_values) {
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
