/* pace.h - what a host has measured of steps, snapshots and workers, and what follows from it. */
#pragma once

#include "swarm/coordinator/coordinator.h"
#include "train/outlook/outlook_members.h"

struct host_pace {
    int snapshot_every;                   // steps between snapshots
    double step_s, snapshot_s, copy_s;    // seconds that each takes
    double busy_s[STRAIT_RUN_STAGES];     // compute time of each stage in the last step
    double batch_s[STRAIT_SWARM_WORKERS]; // that each worker computes a microbatch; 0: unknown
    double copied_s[STRAIT_RUN_STAGES];   // what the last copy of each took at most; 0: unknown
    int is_copied[STRAIT_RUN_STAGES];     // a neighbour has the latest snapshot
    int64_t kept_step, kept_ns;           // the latest snapshot, and when it was taken
    int64_t assigned_ns, restored_ns;     // when the stages were assigned, and when ready

    /* Of this generation: steps that were timed, when the first of them ended, and how a replica of
     * each stage spent a step, with the bytes that crossed the busiest boundary, averaged. */
    int64_t n_steps, first_ns;
    strait_step_times times[STRAIT_RUN_STAGES];
    double forward_bytes, backward_bytes;
    double link_bps[STRAIT_RUN_STAGES]; // of a link to the next stage, as last measured; 0: unknown
    /* Rates of the homes of a stage, by the run file; 0: unlimited. */
    double up_bps[STRAIT_RUN_STAGES], down_bps[STRAIT_RUN_STAGES];
    int64_t n_values[STRAIT_RUN_STAGES]; // gradients of each stage; 0: not computed yet
    strait_outlook_more more;            // what one more worker would bring; gain 0: unknown
    /* So many idle workers would bring nothing: looked at again when others are there, or when this
     * generation has taken so many steps. */
    int n_refused;
    int64_t look_at;
};
