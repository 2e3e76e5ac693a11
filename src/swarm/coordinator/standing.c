/* standing.c - what a worker's word weighs where two contradict each other and no computation tells
 * who of them lies.
 *
 * Keys are cheap, steps are not. Against a worker that has taken part in many steps the word of one
 * that has taken part in few does not count: otherwise a few new keys, each used once, would put
 * any worker aside. So that one with many steps cannot make the run go back with every newcomer, it
 * works alone for a while instead, without further replicas at or beside its stage. What counts
 * against a worker is forgotten after many steps, and later each time.
 *
 * At the beginning of a run nobody has many steps. Half of those that were committed are enough
 * then, but not fewer than a key that joins for a moment takes part in. */
#include "swarm/coordinator/state.h"

#define ALONE_NS INT64_C(60000000000) // after the first contradiction with a newcomer, doubling

enum {
    SENIOR_STEPS = 256,   // that a worker has taken part in, at least
    EARLY_STEPS = 32,     // the same in a run that has fewer than twice as many
    SENIORITY = 4,        // times as many as the other
    ALONE_SHIFT_MAX = 6,  // about an hour
    PARDON_STEPS = 1024,  // committed, after which contradictions are forgotten, doubling
    PARDON_SHIFT_MAX = 10 // as good as never
};

static int is_senior(const struct strait_coordinator *c, int slot, int other) {
    const int64_t n_steps = c->workers[slot].standing.n_steps, half = c->committed / 2;
    const int64_t early = half > EARLY_STEPS ? half : EARLY_STEPS;
    return n_steps >= (early < SENIOR_STEPS ? early : SENIOR_STEPS) &&
           n_steps >= SENIORITY * c->workers[other].standing.n_steps;
}

int strait_coordinator_senior(const struct strait_coordinator *c, int a, int b) {
    if (is_senior(c, a, b)) return a;
    return is_senior(c, b, a) ? b : -1;
}

void strait_coordinator_isolate(struct strait_coordinator *c, int slot) {
    strait_swarm_worker *worker = &c->workers[slot];
    worker->standing.alone_until_ns = c->now_ns + (ALONE_NS << worker->standing.n_alone);
    worker->standing.n_alone += worker->standing.n_alone < ALONE_SHIFT_MAX;
    worker->standing.alone_step = c->committed;
}

int strait_coordinator_is_alone(const struct strait_coordinator *c, int stage) {
    for (int i = stage - 1; i <= stage + 1; i++) {
        if (i < 0 || i >= c->config.n_stages || c->owner[i] < 0) continue;
        if (c->now_ns < c->workers[c->owner[i]].standing.alone_until_ns) return 1;
    }
    return 0;
}

static int64_t pardon_steps(const strait_swarm_worker *worker) {
    return (int64_t)PARDON_STEPS << worker->standing.n_pardons;
}

static void count_pardon(strait_swarm_worker *worker) {
    worker->standing.n_pardons += worker->standing.n_pardons < PARDON_SHIFT_MAX;
}

/* One doubling at a time: a worker that lies to a newcomer now and then works alone for long. */
static void end_isolation(const struct strait_coordinator *c, strait_swarm_worker *worker) {
    if (worker->standing.n_alone == 0 ||
        c->committed - worker->standing.alone_step < pardon_steps(worker))
        return;
    worker->standing.n_alone--;
    worker->standing.alone_step = c->committed;
    count_pardon(worker);
}

static void pardon(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int slot = 0; slot < STRAIT_SWARM_WORKERS; slot++) {
        strait_swarm_worker *worker = &c->workers[slot];
        if (worker->is_known) end_isolation(c, worker);
        if (!worker->is_known ||
            worker->n_disputes + worker->n_returns + worker->standing.n_opponents == 0 ||
            c->committed - worker->standing.marked_step < pardon_steps(worker))
            continue;
        worker->n_disputes = worker->n_returns = 0;
        worker->standing.n_opponents = worker->standing.n_lost = 0;
        count_pardon(worker);
        (void)strait_coordinator_log(c, out, slot,
                                     "its earlier contradictions with other workers are cleared");
        if (!worker->is_connected && worker->stage < 0) strait_coordinator_forget(c, slot);
    }
}

void strait_coordinator_count_step(struct strait_coordinator *c, strait_swarm_actions *out) {
    for (int i = 0; i < c->config.n_stages; i++)
        for (int k = 0; k < strait_coordinator_n_replicas(c, i); k++)
            c->workers[strait_coordinator_replica(c, i, k)].standing.n_steps++;
    if (c->committed % STRAIT_SWARM_CALM_STEPS == 0) pardon(c, out);
}
