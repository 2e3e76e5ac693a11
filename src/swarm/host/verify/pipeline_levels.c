#include "swarm/host/verify/pipeline_levels.h"

#include "swarm/host/state.h"
#include "train/pipeline.h"

#include <string.h>

static const strait_stage_reply *gradients_of(const struct host *h, int stage, int replica) {
    return &h->work.channel.replies
                .items[strait_run_plan_member(&h->executor->plan, stage, replica)];
}

double strait_host_replica_loss(const struct host *h, int replica) {
    const strait_run_plan *plan = &h->executor->plan;
    const int last = plan->n_stages - 1;
    const double n = strait_pipeline_count_microbatches(h->pipeline, last, replica);
    const double share = n / plan->groups.n_microbatches;
    return gradients_of(h, last, replica)->gradients.loss_sum / share /
           (double)h->run.train.batch_tokens;
}

/* What a worker is compared with; NULL: it was banned since. One that was away for a step begins
 * another history: the loss may have changed meanwhile. */
static struct host_worker_level *level_of(struct host *h, int64_t step, int stage, int replica) {
    const int slot = strait_coordinator_replica(&h->coordinator, stage, replica);
    if (slot < 0) return NULL;
    struct host_worker_level *level = &h->averages.levels[slot];
    const strait_fingerprint *key = &h->coordinator.workers[slot].key;
    if (level->stage != stage || step - level->step > 1 ||
        memcmp(&level->key, key, sizeof *key) != 0)
        *level = (struct host_worker_level){.key = *key, .stage = stage, .step = step};
    return level;
}

static int is_far(const struct host *h, const struct host_worker_level *level, int stage,
                  int replica) {
    const int is_last = stage == h->executor->plan.n_stages - 1;
    return !strait_claims_are_squares_plausible(
               &level->squares, &gradients_of(h, stage, replica)->gradients.squares) ||
           (is_last &&
            !strait_claims_is_loss_plausible(&level->loss, strait_host_replica_loss(h, replica)));
}

/* Each is compared with its own history, which no other can write, and with those of all others:
 * only if most of them say so it is far from them. */
static int is_stage_far(struct host *h, int64_t step, int stage, int replica) {
    const strait_run_plan *plan = &h->executor->plan;
    int n_far = 0;
    if (stage == plan->n_stages - 1 &&
        !strait_claims_is_loss_possible(plan->shape.vocab, strait_host_replica_loss(h, replica)))
        return 1;
    for (int k = 0; k < plan->replicas[stage]; k++) {
        const struct host_worker_level *level = level_of(h, step, stage, k);
        if (level == NULL || !is_far(h, level, stage, replica)) continue;
        if (k == replica) return 1;
        n_far++;
    }
    return 2 * n_far > plan->replicas[stage] - 1;
}

int strait_host_find_far(struct host *h, int64_t step, int replica) {
    for (int i = 0; i < h->executor->plan.n_stages; i++)
        if (is_stage_far(h, step, i, replica)) return i;
    return -1;
}

void strait_host_accept_pipeline(struct host *h, int64_t step, int replica) {
    const int n = h->executor->plan.n_stages;
    for (int i = 0; i < n; i++) {
        struct host_worker_level *level = level_of(h, step, i, replica);
        if (level == NULL) continue;
        level->step = step;
        strait_claims_accept_squares(&level->squares,
                                     &gradients_of(h, i, replica)->gradients.squares);
        if (i == n - 1)
            strait_claims_accept_loss(&level->loss, strait_host_replica_loss(h, replica));
    }
}
