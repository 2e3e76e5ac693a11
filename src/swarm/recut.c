#include "swarm/recut.h"

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

static int fits(const strait_assign_node *spare, double need_bytes) {
    return spare->memory_bytes <= 0.0 || spare->memory_bytes >= need_bytes;
}

/* The fastest that holds the stage; -1: none is faster than its machine. */
static int find_heir(const strait_recut_spec *spec, const unsigned char *is_taken, int stage) {
    int best = -1;
    for (int i = 0; i < spec->n_spares && i < SPARES_MAX; i++) {
        const strait_assign_node *spare = &spec->spares[i];
        if (is_taken[i] || !fits(spare, spec->need_bytes[stage]) ||
            spare->flops < faster * spec->speeds[stage])
            continue;
        if (best < 0 || spare->flops > spec->spares[best].flops) best = i;
    }
    return best;
}

static double stay(int heirs[STRAIT_RUN_STAGES]) {
    for (int i = 0; i < STRAIT_RUN_STAGES; i++)
        heirs[i] = -1;
    return 1.0;
}

double strait_recut(const strait_recut_spec *spec, int heirs[STRAIT_RUN_STAGES]) {
    double busy[STRAIT_RUN_STAGES];
    unsigned char is_taken[SPARES_MAX] = {0};
    (void)stay(heirs);
    if (spec->n_stages < 2 || !(spec->wall_s > 0.0)) return 1.0; // one stage has no neighbour
    memcpy(busy, spec->busy_s, (size_t)spec->n_stages * sizeof *busy);
    const double before = busy[busiest(busy, spec->n_stages)];
    for (int i = 0; i < spec->n_stages; i++) { // the slowest first, each at most once
        const int slow = busiest(busy, spec->n_stages);
        if (heirs[slow] >= 0 || !(spec->speeds[slow] > 0.0)) break;
        const int heir = find_heir(spec, is_taken, slow);
        if (heir < 0) break;
        heirs[slow] = heir;
        is_taken[heir] = 1;
        busy[slow] *= spec->speeds[slow] / spec->spares[heir].flops;
    }
    const double saved = before - busy[busiest(busy, spec->n_stages)];
    if (!(saved > 0.0) || saved >= spec->wall_s) return stay(heirs);
    const double gain = spec->wall_s / (spec->wall_s - saved);
    if (gain < worth || spec->left_s * saved / spec->wall_s <= spec->cost_s) return stay(heirs);
    for (int i = 1; i < spec->n_stages; i++)
        if (heirs[i - 1] >= 0) heirs[i] = -1;
    return gain;
}
