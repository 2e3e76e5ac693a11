#include "swarm/coordinator/rebalance.h"

#include <string.h>

enum {
    SPARES_MAX = 1024
};

static const double min_speedup = 1.3; // of a spare; smaller differences may be noise
static const double min_gain = 1.1;    // of a step; a smaller one is not worth a handover

static int busiest(const double *busy, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (busy[i] > busy[best]) best = i;
    return best;
}

static int fits(const strait_assign_worker *spare, double need_bytes) {
    return spare->memory_bytes <= 0.0 || spare->memory_bytes >= need_bytes;
}

/* Returns the fastest spare that can hold the stage; -1: none is faster than its owner. */
static int find_successor(const strait_rebalance_spec *spec, const unsigned char *is_taken,
                          int stage) {
    int best = -1;
    for (int i = 0; i < spec->n_spares && i < SPARES_MAX; i++) {
        const strait_assign_worker *spare = &spec->spares[i];
        if (is_taken[i] || !fits(spare, spec->need_bytes[stage]) ||
            spare->flops < min_speedup * spec->speeds[stage])
            continue;
        if (best < 0 || spare->flops > spec->spares[best].flops) best = i;
    }
    return best;
}

/* Moves nothing. */
static double keep_all(int successors[STRAIT_RUN_STAGES]) {
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        successors[i] = -1;
    return 1.0;
}

double strait_rebalance(const strait_rebalance_spec *spec, int successors[STRAIT_RUN_STAGES]) {
    double busy[STRAIT_RUN_STAGES];
    unsigned char is_taken[SPARES_MAX] = {0};
    (void)keep_all(successors);
    if (spec->n_stages < 2 || !(spec->wall_s > 0.0))
        return 1.0; // a single stage has no neighbour to restore from
    memcpy(busy, spec->busy_s, (size_t)spec->n_stages * sizeof *busy);
    const double slowest = busy[busiest(busy, spec->n_stages)];
    for (int i = 0; i < spec->n_stages; i++) { // the slowest stage first, each at most once
        const int slow = busiest(busy, spec->n_stages);
        if (successors[slow] >= 0 || !(spec->speeds[slow] > 0.0)) break;
        const int successor = find_successor(spec, is_taken, slow);
        if (successor < 0) break;
        successors[slow] = successor;
        is_taken[successor] = 1;
        busy[slow] *= spec->speeds[slow] / spec->spares[successor].flops;
    }
    const double saved = slowest - busy[busiest(busy, spec->n_stages)];
    if (!(saved > 0.0) || saved >= spec->wall_s) return keep_all(successors);
    const double gain = spec->wall_s / (spec->wall_s - saved);
    if (gain < min_gain || spec->left_s * saved / spec->wall_s <= spec->cost_s)
        return keep_all(successors);
    for (int i = 1; i < spec->n_stages; i++)
        if (successors[i - 1] >= 0) successors[i] = -1;
    return gain;
}
