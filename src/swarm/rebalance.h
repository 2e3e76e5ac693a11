/* recut.h - whether machines that came late should take stages over: a pure function of what was
 * measured.
 *
 * Layers stay in their stages, so the numbers of the run stay what they are, whatever its codec;
 * what changes is who computes them. docs/decisions/018 says why. */
#pragma once

#include "swarm/assign.h"

typedef struct strait_rebalance_spec {
    int n_stages;
    double wall_s;            // of a step, measured
    const double *busy_s;     // of it, what each stage computed
    const double *speeds;     // of the stages' machines, as they reported; 0: unknown
    const double *need_bytes; // of the stages; 0: unknown
    const strait_assign_worker *spares;
    int n_spares;
    double left_s; // of the run, at this pace
    double cost_s; // of handing stages over
} strait_rebalance_spec;

/* Writes the spare that each stage should go to, -1 where it stays, and returns how much faster a
 * step would be once all have moved that should; 1, and nobody moves, when it does not pay: less
 * than a tenth is gained, or less time in the rest of the run than the move costs. A spare counts
 * as faster from 1.3 times the speed on. Of two neighbours only one moves at a time, since each
 * holds what the other's heir needs. */
double strait_rebalance(const strait_rebalance_spec *spec, int successors[STRAIT_RUN_STAGES]);
