/* split.c - how the layers of a new run are divided among the workers that have joined. */
#include "swarm/coordinator/assign.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>

enum {
    WAIT_MS = 200
};

/* Chooses the split of layers and the workers that it fits, which START gives to the coordinator.
 */
static strait_err assign(struct host *h, strait_assign_spec *spec, int split[STRAIT_RUN_STAGES]) {
    strait_assign_worker workers[STRAIT_SWARM_WORKERS];
    int slots[STRAIT_SWARM_WORKERS];
    int chosen[STRAIT_RUN_STAGES];
    spec->n_workers = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const strait_swarm_worker *worker = &h->coordinator.workers[i];
        if (!worker->is_known || !worker->is_connected) continue;
        slots[spec->n_workers] = i;
        workers[spec->n_workers++] = (strait_assign_worker){worker->report.memory_bytes,
                                                            worker->report.flops};
    }
    spec->workers = workers;
    STRAIT_TRY(strait_assign(spec, chosen, split));
    h->has_chosen = 1;
    for (int i = 0; i < spec->n_stages; i++)
        h->chosen[i] = slots[chosen[i]];
    return STRAIT_OK;
}

strait_err strait_host_choose_split(struct host *h, const strait_run_plan *plan) {
    int wanted[STRAIT_RUN_STAGES];
    int split[STRAIT_RUN_STAGES];
    char reason[256] = "";
    strait_assign_spec spec = {.n_stages = plan->n_stages,
                               .n_layers = plan->shape.layers,
                               .stride = plan->shape.local_every};
    STRAIT_TRY(strait_host_plan_layers(plan, &spec.layer_bytes, &spec.head_cost));
    for (int i = 0; i < h->run.stages.split.n; i++)
        wanted[i] = (int)h->run.stages.split.items[i];
    if (h->run.stages.split.n > 0) spec.split = wanted;
    for (;;) {
        const strait_err err = assign(h, &spec, split);
        if (err == STRAIT_OK) break;
        if (err != STRAIT_EAGAIN) return err;
        if (strcmp(reason, strait_err_detail()) != 0) {
            (void)snprintf(reason, sizeof reason, "%.255s", strait_err_detail());
            strait_host_note(h, "waiting: %s", reason);
        }
        STRAIT_TRY(strait_host_pump(h, WAIT_MS));
        if (h->spec->session.must_stop(h->spec->session.user))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "stopped before enough workers had joined");
    }
    h->run.stages.split.n = plan->n_stages;
    for (int i = 0; i < plan->n_stages; i++)
        h->run.stages.split.items[i] = split[i];
    return strait_host_save_run(h);
}
