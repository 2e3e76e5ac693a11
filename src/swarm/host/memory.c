/* memory.c - how much memory each stage takes, compared with what its worker lends. */
#include "swarm/budget.h"
#include "swarm/host/state.h"

static strait_err stage_need(const struct strait_executor *executor, int stage, int n_slots,
                             double *out) {
    strait_budget budget;
    STRAIT_TRY(strait_budget_plan(&executor->plan, stage, n_slots,
                                  strait_loader_valid_windows(executor->loader), &budget));
    *out = strait_budget_sum(&budget);
    return STRAIT_OK;
}

strait_err strait_host_plan_memory(struct host *h, const struct strait_executor *executor) {
    for (int i = 0; i < executor->plan.n_stages; i++) {
        const int least = strait_budget_least_slots(&executor->plan, i);
        size_t bytes = 0;
        STRAIT_TRY(stage_need(executor, i, h->windows[i] > least ? h->windows[i] : least,
                              &h->coordinator.config.need_bytes[i]));
        STRAIT_TRY(strait_snapshot_expected_bytes(&executor->plan, i, &bytes));
        h->coordinator.config.snapshot_bytes[i] = (double)bytes;
    }
    return STRAIT_OK;
}

/* More slots than these only make a pipeline faster, so memory decides. */
strait_err strait_host_fit_windows(struct host *h, struct strait_executor *executor) {
    for (int i = 0; i < executor->plan.n_stages; i++) {
        const int owner = h->coordinator.owner[i];
        const double lent = owner >= 0 ? h->coordinator.workers[owner].report.memory_bytes : 0.0;
        const int least = strait_budget_least_slots(&executor->plan, i);
        double need = 0.0;
        STRAIT_TRY(stage_need(executor, i, executor->windows[i], &need));
        while (lent > 0.0 && need > lent && executor->windows[i] > least)
            STRAIT_TRY(stage_need(executor, i, --executor->windows[i], &need));
    }
    return STRAIT_OK;
}
