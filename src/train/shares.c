#include "train/shares.h"

#include <math.h>

/* Timings of a few microbatches on a busy machine differ by this factor for no reason. */
static const double noise = 1.5;

/* Seconds that a microbatch takes on the narrower wire of a member's home: it sends and receives a
 * message for each neighbour. */
static double home_s(const strait_run_plan *plan, int stage, int member) {
    double bytes[2] = {0.0, 0.0}, longest = 0.0; // out, in
    const double rates[2] = {plan->up_bps[member], plan->down_bps[member]};
    for (int k = 0; k < 2; k++) {
        const int out = k == STRAIT_FORWARD, in = !out;
        if (rates[0] <= 0 && rates[1] <= 0) return 0.0;
        const double size = (double)strait_codec_wire_bytes(&plan->codec, (strait_direction)k);
        bytes[in] += stage + 1 < plan->n_stages ? size : 0.0;
        bytes[out] += stage > 0 ? size : 0.0;
    }
    for (int k = 0; k < 2; k++)
        if (rates[k] > 0) longest = fmax(longest, 8.0 * bytes[k] / rates[k]);
    return longest;
}

/* What takes longer, computing or crossing, decides how many microbatches a replica can take. */
static void measure_speeds(const strait_run_plan *plan, int stage, int first,
                           const strait_step_times *times, double *speeds) {
    const int n = plan->replicas[stage];
    double slowest = INFINITY, fastest = 0.0;
    for (int i = 0; i < n; i++) {
        const double computing = times[i].forward + times[i].input + times[i].weights;
        speeds[i] = 1.0 / fmax(computing, home_s(plan, stage, first + i));
        slowest = fmin(slowest, speeds[i]);
        fastest = fmax(fastest, speeds[i]);
    }
    for (int i = 0; i < n && fastest < noise * slowest; i++)
        speeds[i] = 1.0;
}

void strait_shares_choose(const strait_run *run, const strait_run_plan *plan,
                          const strait_step_times *times, strait_group_owners *out) {
    const int is_given = run != NULL && run->stages.speeds.n > 0;
    for (int stage = 0, member = 0; stage < plan->n_stages; stage++) {
        const int n = plan->replicas[stage];
        double speeds[STRAIT_RUN_REPLICAS];
        for (int i = 0; i < n; i++)
            speeds[i] = is_given ? (double)run->stages.speeds.items[member + i] : 1.0;
        if (!is_given && times != NULL && plan->sums_pairwise)
            measure_speeds(plan, stage, member, &times[member], speeds);
        strait_groups_share(&plan->groups, n, speeds, &out[stage]);
        /* Pipelines of their own compute the same microbatches in every stage. */
        if (strait_run_plan_has_outer(plan)) out[stage] = out[0];
        member += n;
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
