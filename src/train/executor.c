#include "train/executor.h"

#include "base/alloc.h"
#include "train/cluster/cluster.h"

#include <math.h>

/* Without an executor chosen by the caller, the number of stages decides. One replica with an outer
 * step is driven like several. */
strait_err strait_executor_open(strait_executor_choice choice, const strait_run *run,
                                const strait_run_plan *plan, struct strait_loader *loader,
                                struct strait_executor **out) {
    struct strait_executor *executor = NULL;
    if (choice.ops == NULL && strait_cluster_is_joined())
        STRAIT_TRY(strait_cluster_check(plan->n_members));
    STRAIT_TRY(strait_alloc(1, sizeof *executor, "executor", (void **)&executor));
    executor->ops = choice.ops;
    if (executor->ops == NULL)
        executor->ops = plan->n_members > 1 || strait_run_plan_has_outer(plan)
                            ? &strait_remote_executor
                            : &strait_local_executor;
    executor->user = choice.user;
    executor->run = *run;
    executor->plan = *plan;
    executor->loader = loader;
    strait_err err = strait_alloc(1, executor->ops->state_size, "executor", &executor->state);
    if (err == STRAIT_OK) err = executor->ops->open(executor);
    if (err != STRAIT_OK) {
        strait_executor_close(&executor);
        return err;
    }
    *out = executor;
    return STRAIT_OK;
}

/* Without state open has not run, so there is nothing to close. */
void strait_executor_close(struct strait_executor **executor) {
    struct strait_executor *e = *executor;
    if (e == NULL) return;
    if (e->state != NULL) e->ops->close(e);
    strait_alloc_free(e->state);
    strait_alloc_free(e);
    *executor = NULL;
}

/* Sums in the order of the parameters and in double precision, so that the norm has the same bits
 * for every split into stages. */
double strait_executor_norm(const float *squares, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += (double)squares[i];
    return sqrt(sum);
}

/* Gradients are only ever scaled down; a limit of 0 turns clipping off. */
float strait_executor_factor(double limit, double norm) {
    return limit > 0.0 && norm > limit ? (float)(limit / norm) : 1.0f;
}

int strait_executor_list_files(const struct strait_executor *executor,
                               strait_checkpoint_stage_file *files) {
    const strait_run_plan *plan = &executor->plan;
    const int n_replicas = strait_run_plan_has_outer(plan) ? plan->replicas[0] : 1;
    int n = 0;
    for (int i = 0; i < plan->n_stages; i++) {
        int is_first = 1;
        files[n++] = (strait_checkpoint_stage_file){.stage = i};
        for (int r = 0; r < n_replicas; r++) {
            if ((executor->lost >> r & 1) != 0) continue;
            files[n++] = (strait_checkpoint_stage_file){
                .stage = i, .is_state = 1, .replica = is_first ? 0 : r};
            is_first = 0;
        }
    }
    return n;
}
