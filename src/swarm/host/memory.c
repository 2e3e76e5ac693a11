/* memory.c - how much memory each stage takes, compared with what its worker lends. */
#include "base/machine.h"
#include "swarm/budget.h"
#include "swarm/host/replicas.h"
#include "train/fit.h"

enum {
    OWN_BYTES = 64 << 20, // the program, its links and token ids
    SNAPSHOTS = 2         // of a stage: one is written or sent while the next one arrives
};

static strait_err stage_need(const struct strait_executor *executor, int stage, int n_slots,
                             double *out) {
    strait_budget budget;
    STRAIT_TRY(strait_budget_plan(&executor->plan, stage, n_slots,
                                  strait_loader_valid_windows(executor->loader), &budget));
    *out = strait_budget_sum(&budget);
    return STRAIT_OK;
}

/* As the average over the model and its snapshots. */
strait_err strait_host_plan_layers(const strait_run_plan *plan, double *layer_bytes,
                                   double *head_cost) {
    double sum = 0.0;
    for (int i = 0; i < plan->n_stages; i++) {
        strait_budget budget;
        const int n_slots = strait_budget_least_slots(plan, i);
        STRAIT_TRY(strait_budget_plan(plan, i, n_slots, 0, &budget));
        sum += strait_budget_sum(&budget);
    }
    *layer_bytes = sum / (double)plan->shape.layers;
    *head_cost = (double)(plan->shape.vocab * plan->shape.width) /
                 (double)strait_shape_block_params(&plan->shape);
    return STRAIT_OK;
}

/* Twice: for the parts of others, and then for the averages (strait_outer_limit_ns). A worker
 * replies when all that it sends is queued for its links. */
static strait_err plan_average(struct host *h, const strait_run_plan *plan, int stage) {
    const int64_t deadline_ns = (int64_t)(h->run.link.deadline * 1e9);
    strait_runner_memory memory;
    if (!strait_run_plan_has_outer(plan)) return STRAIT_OK;
    STRAIT_TRY(strait_runner_plan(plan, stage, 1, &memory));
    h->coordinator.config.deadline_ns = deadline_ns;
    h->coordinator.config.queue_ns = (int64_t)((double)strait_budget_queue(plan) /
                                               STRAIT_OUTER_SLOWEST * 1e9);
    h->coordinator.config.average_ns[stage] = 2 *
                                              strait_outer_wait_ns(memory.exchanged, deadline_ns);
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
        STRAIT_TRY(plan_average(h, &executor->plan, i));
    }
    return STRAIT_OK;
}

/* More slots than these only make a pipeline faster, so memory decides. */
strait_err strait_host_fit_windows(struct host *h, struct strait_executor *executor) {
    for (int i = 0; i < executor->plan.n_stages; i++) {
        const double lent = strait_host_owner(h, i)->report.memory_bytes;
        const int least = strait_budget_least_slots(&executor->plan, i);
        double need = 0.0;
        STRAIT_TRY(stage_need(executor, i, executor->windows[i], &need));
        while (lent > 0.0 && need > lent && executor->windows[i] > least)
            STRAIT_TRY(stage_need(executor, i, --executor->windows[i], &need));
    }
    return STRAIT_OK;
}

/* What passing on the snapshots of the largest stage takes. The coordinator computes nothing. */
static strait_err measure_own(void *user, const strait_run *run, double *lacks, double *needs) {
    const double *spare = user;
    struct strait_loader *loader = NULL;
    strait_run_plan plan;
    size_t largest = 0;
    STRAIT_TRY(strait_loader_open(run, &loader));
    strait_err err = strait_run_plan_init(run, strait_loader_vocab(loader), &plan);
    strait_loader_close(&loader);
    for (int i = 0; err == STRAIT_OK && i < plan.n_stages; i++) {
        size_t bytes = 0;
        err = strait_snapshot_expected_bytes(&plan, i, &bytes);
        if (bytes > largest) largest = bytes;
    }
    *needs = OWN_BYTES + SNAPSHOTS * (double)largest;
    *lacks = *spare > 0.0 ? *needs - *spare : 0.0;
    return err;
}

static strait_err check_own_memory(const strait_run *run) {
    char changes[STRAIT_FIT_TEXT], need[32], has[32];
    double spare = strait_machine_spare_bytes(), lacks = 0.0, needs = 0.0;
    STRAIT_TRY(measure_own(&spare, run, &lacks, &needs));
    if (lacks <= 0.0) return STRAIT_OK;
    strait_fit_suggest(run, measure_own, &spare, 1, changes);
    strait_fit_bytes(needs, need);
    strait_fit_bytes(spare, has);
    return STRAIT_FAIL(STRAIT_ENOMEM,
                       "the coordinator needs %s of memory to pass on snapshots of the largest "
                       "stage, and %s are free%s%s",
                       need, has, changes[0] != '\0' ? "; it would fit with " : "", changes);
}

strait_err strait_host_check_resources(const struct host *h) {
    if (h->spec->is_forced) return STRAIT_OK;
    STRAIT_TRY(check_own_memory(&h->run));
    if (h->spec->resumes || h->persistence.was_begun) return STRAIT_OK; // it waits for a full disk
    return strait_session_check_disk(&h->run, h->spec->folder, 0);
}
