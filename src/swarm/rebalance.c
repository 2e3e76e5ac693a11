#include "swarm/rebalance.h"

#include <string.h>

enum {
    SPARES_MAX = 1024
};

static const double faster = 1.3; // what measurements differ by counts as the same
static const double worth = 1.1;  // a smaller gain is left

static int busiest(const double *busy, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (busy[i] > busy[best]) best = i;
    return best;
}

static int fits(const strait_assign_worker *spare, double need_bytes) {
    return spare->memory_bytes <= 0.0 || spare->memory_bytes >= need_bytes;
}

/* The fastest that holds the stage; -1: none is faster than its machine. */
static int find_heir(const strait_rebalance_spec *spec, const unsigned char *is_taken, int stage) {
    int best = -1;
    for (int i = 0; i < spec->n_spares && i < SPARES_MAX; i++) {
        const strait_assign_worker *spare = &spec->spares[i];
        if (is_taken[i] || !fits(spare, spec->need_bytes[stage]) ||
            spare->flops < faster * spec->speeds[stage])
            continue;
        if (best < 0 || spare->flops > spec->spares[best].flops) best = i;
    }
    return best;
}

static double stay(int successors[STRAIT_RUN_STAGES]) {
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        successors[i] = -1;
    return 1.0;
}

double strait_rebalance(const strait_rebalance_spec *spec, int successors[STRAIT_RUN_STAGES]) {
    double busy[STRAIT_RUN_STAGES];
    unsigned char is_taken[SPARES_MAX] = {0};
    (void)stay(successors);
    if (spec->n_stages < 2 || !(spec->wall_s > 0.0)) return 1.0; // one stage has no neighbour
    memcpy(busy, spec->busy_s, (size_t)spec->n_stages * sizeof *busy);
    const double prev = busy[busiest(busy, spec->n_stages)];
    for (int i = 0; i < spec->n_stages; i++) { // the slowest first, each at most once
        const int slow = busiest(busy, spec->n_stages);
        if (successors[slow] >= 0 || !(spec->speeds[slow] > 0.0)) break;
        const int successor = find_heir(spec, is_taken, slow);
        if (successor < 0) break;
        successors[slow] = successor;
        is_taken[successor] = 1;
        busy[slow] *= spec->speeds[slow] / spec->spares[successor].flops;
    }
    const double saved = prev - busy[busiest(busy, spec->n_stages)];
    if (!(saved > 0.0) || saved >= spec->wall_s) return stay(successors);
    const double gain = spec->wall_s / (spec->wall_s - saved);
    if (gain < worth || spec->left_s * saved / spec->wall_s <= spec->cost_s)
        return stay(successors);
    for (int i = 1; i < spec->n_stages; i++)
        if (successors[i - 1] >= 0) successors[i] = -1;
    return gain;
}
