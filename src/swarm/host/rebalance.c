/* rebalance.c - moves stages to spares that joined late and are faster than the owners. */
#include "swarm/coordinator/rebalance.h"

#include "base/clock.h"
#include "swarm/host/replicas.h"

/* A spare with any fault so far gets a stage only when it is needed, not to save time. */
static int may_take_over(const strait_swarm_worker *worker) {
    return worker->is_known && worker->is_connected && worker->stage < 0 && worker->helps < 0 &&
           worker->will_help < 0 && !worker->is_leaving && !worker->is_unfit &&
           !worker->is_suspect && worker->n_penalties == 0 && worker->n_violations == 0 &&
           worker->n_disputes == 0;
}

/* Estimates the cost of a handover: what the last generation took to get ready, and two snapshots.
 */
static double handover_s(const struct host *h) {
    return (double)(h->pace.restored_ns - h->pace.assigned_ns) * 1e-9 + 2.0 * h->pace.snapshot_s;
}

void strait_host_rebalance(struct host *h, int64_t step) {
    const struct strait_coordinator *c = &h->coordinator;
    strait_assign_worker spares[STRAIT_SWARM_WORKERS];
    int workers[STRAIT_SWARM_WORKERS];
    double speeds[STRAIT_RUN_STAGES] = {0};
    int successors[STRAIT_RUN_STAGES];
    const int64_t pause_ns = (int64_t)(h->spec->rebalance_s * 1e9);
    if (h->spec->rebalance_s <= 0.0 || c->config.has_pipelines || c->phase != STRAIT_PHASE_READY ||
        h->pace.step_s <= 0.0 || strait_clock_ns() - h->pace.restored_ns < pause_ns ||
        strait_coordinator_count_spares(c) == 0)
        return;
    strait_rebalance_spec spec = {.n_stages = c->config.n_stages,
                                  .wall_s = h->pace.step_s,
                                  .busy_s = h->pace.busy_s,
                                  .speeds = speeds,
                                  .need_bytes = c->config.need_bytes,
                                  .spares = spares,
                                  .left_s = (double)(h->run.train.steps - step) * h->pace.step_s,
                                  .cost_s = handover_s(h)};
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const strait_swarm_worker *worker = &c->workers[i];
        if (!may_take_over(worker)) continue;
        workers[spec.n_spares] = i;
        spares[spec.n_spares++] = (strait_assign_worker){worker->report.memory_bytes,
                                                         worker->report.flops};
    }
    for (int i = 0; i < spec.n_stages; i++)
        speeds[i] = strait_host_owner(h, i)->report.flops;
    /* Speeds are what workers measured when they joined: a benchmark alike for all, whatever stage
     * they serve. */
    const double gain = strait_rebalance(&spec, successors);
    if (gain <= 1.0) return;
    strait_host_note(h, "step %lld: steps would be %.2g times as fast on spares; moving stages",
                     (long long)step, gain);
    for (int i = 0; i < spec.n_stages; i++)
        if (successors[i] >= 0)
            strait_host_feed_coordinator(
                h, &(strait_swarm_event){.kind = STRAIT_SWARM_REASSIGN,
                                         .worker = c->owner[i],
                                         .successor = workers[successors[i]]});
}
