/* run_replicas.c - how many replicas the stages of a plan have, and the groups that they share. */
#include "config/run_plan.h"

int strait_run_plan_member(const strait_run_plan *plan, int stage, int replica) {
    for (int i = 0; i < stage; i++)
        replica += plan->replicas[i];
    return replica;
}

void strait_run_plan_locate(const strait_run_plan *plan, int member, int *stage, int *replica) {
    for (*stage = 0; member >= plan->replicas[*stage]; (*stage)++)
        member -= plan->replicas[*stage];
    *replica = member;
}

int strait_run_plan_replicas_max(const strait_run_plan *plan) {
    int most = 1;
    for (int i = 0; i < plan->n_stages; i++)
        if (plan->replicas[i] > most) most = plan->replicas[i];
    return most;
}

strait_err strait_run_plan_fit_replicas(const strait_run *run, strait_run_plan *plan) {
    for (int i = 0; i < plan->n_stages; i++)
        plan->n_members += plan->replicas[i] = 1;
    plan->groups = strait_groups_make((int)plan->n_microbatches, (int)run->stages.groups,
                                      strait_run_plan_replicas_max(plan));
    return STRAIT_OK;
}
