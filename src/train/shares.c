#include "train/shares.h"

void strait_shares_choose(const strait_run *run, const strait_run_plan *plan,
                          const strait_step_times *times, strait_group_owners *out) {
    for (int stage = 0, member = 0; stage < plan->n_stages; stage++) {
        double speeds[STRAIT_RUN_REPLICAS];
        for (int i = 0; i < plan->replicas[stage]; i++, member++) {
            speeds[i] = 1.0;
            if (run->stages.speeds.n > 0)
                speeds[i] = (double)run->stages.speeds.items[member];
            else if (times != NULL && plan->sums_pairwise)
                speeds[i] = 1.0 /
                            (times[member].forward + times[member].input + times[member].weights);
        }
        strait_groups_share(&plan->groups, plan->replicas[stage], speeds, &out[stage]);
    }
}

strait_step_times strait_shares_mean(const strait_step_times *times, int n, int share) {
    strait_step_times sum = {0};
    for (int i = 0; i < n; i++) {
        sum.forward += times[i].forward;
        sum.input += times[i].input;
        sum.weights += times[i].weights;
        sum.codec += times[i].codec;
        sum.wait += times[i].wait;
        sum.wall += times[i].wall;
    }
    const double by = (double)n * share;
    return (strait_step_times){.forward = sum.forward / by,
                               .input = sum.input / by,
                               .weights = sum.weights / by,
                               .codec = sum.codec / by,
                               .wait = sum.wait / by,
                               .wall = sum.wall / by};
}
