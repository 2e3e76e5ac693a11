/* rebalance.h - decides whether spares that joined late should take over stages: a pure function of
 * measurements.
 *
 * Layers stay in their stages, so a run computes the same values with any codec; only the workers
 * change. docs/decisions/swarm/018 gives the reasons. */
#pragma once

#include "swarm/coordinator/assign.h"

typedef struct strait_rebalance_spec {
    int n_stages;
    double wall_s;            // measured time of a step
    const double *busy_s;     // compute time of each stage in it
    const double *speeds;     // of the stages' workers, as they reported; 0: unknown
    const double *need_bytes; // memory of the stages; 0: unknown
    const strait_assign_worker *spares;
    int n_spares;
    double left_s; // remaining time of the run at this pace
    double cost_s; // time of a handover
} strait_rebalance_spec;

/* Writes the spare that each stage should move to, -1 where it stays, and returns how many times
 * faster a step would be after all moves. Returns 1, and moves nothing, if the gain is less than a
 * tenth or the rest of the run would save less time than the handover costs. A spare counts as
 * faster from 1.3 times the speed on. Of two neighbouring stages only one moves at a time, since
 * each owner holds the copy that the other's successor needs. */
double strait_rebalance(const strait_rebalance_spec *spec, int successors[STRAIT_RUN_STAGES]);
