/* inventory.h - which snapshots a worker has in memory, and where a stage can be restored
 * from. Workers report their inventory with every heartbeat. Plain data. */
#pragma once

#include "base/digest/sha256.h"

#include <stdint.h>

enum {
    STRAIT_SWARM_SNAPSHOTS = 3 // of one stage in one worker, at most
};

/* The snapshots of one stage. */
typedef struct strait_snapshot_set {
    int stage; // -1: none
    int n;
    int64_t steps[STRAIT_SWARM_SNAPSHOTS];
    uint32_t generations[STRAIT_SWARM_SNAPSHOTS];  // in which each was taken
    strait_digest digests[STRAIT_SWARM_SNAPSHOTS]; // of its bytes
} strait_snapshot_set;

/* The state that a worker's stage has now, and the crossings that it has kept. */
typedef struct strait_live_state {
    int stage;           // -1: none
    int64_t step;        // steps that it has applied; -1: it is not the state of any step
    uint32_t generation; // in which it was restored, or continued, last
    int is_pending;      // gradients of `step` are complete: its update can follow
    int64_t first_kept;  // from this step on, what the stage sent is kept
} strait_live_state;

/* The snapshots of a worker's own stage, its copies of those of the stages before and after, and
 * its live state. */
typedef struct strait_snapshot_inventory {
    strait_snapshot_set own, prev, next;
    strait_live_state live;
} strait_snapshot_inventory;

/* Bytes that a worker has received so far of snapshots that are still to come: of the one that it
 * restores, and of the copies of the stages before and after, of the step that it is at. */
typedef struct strait_snapshot_arrivals {
    uint64_t own, prev, next;
} strait_snapshot_arrivals;

typedef enum strait_swarm_source {
    STRAIT_SWARM_FROM_SEED,    // step 0: initial weights, no snapshot needed
    STRAIT_SWARM_FROM_SELF,    // the worker's own snapshot
    STRAIT_SWARM_FROM_PREV,    // a copy that the previous stage's owner sends
    STRAIT_SWARM_FROM_NEXT,    // likewise, of the next stage
    STRAIT_SWARM_FROM_HOST,    // the checkpoint, sent by the coordinator
    STRAIT_SWARM_FROM_LIVE,    // nothing: the stage continues with the state that it has
    STRAIT_SWARM_FROM_REPLICA, // the snapshot of the stage's first replica, which sends it
} strait_swarm_source;

/* Returns whether the set has the snapshot of `stage` at `step`. */
int strait_snapshot_set_has(const strait_snapshot_set *set, int stage, int64_t step);

/* The same, with these bytes. */
int strait_snapshot_set_has_digest(const strait_snapshot_set *set, int stage, int64_t step,
                                   const strait_digest *digest);

/* Removes the entry at index `i`; the last one takes its place. */
void strait_snapshot_set_remove(strait_snapshot_set *set, int i);

/* Removes snapshots after `step`. */
void strait_snapshot_set_trim(strait_snapshot_set *set, int64_t step);

/* Returns an inventory without snapshots. */
strait_snapshot_inventory strait_snapshot_inventory_empty(void);

/* Returns whether the worker holds a copy of a neighbour's snapshot of `stage` at `step` with these
 * bytes. */
int strait_snapshot_inventory_has_copy(const strait_snapshot_inventory *inventory, int stage,
                                       int64_t step, const strait_digest *digest);

/* Removes snapshots after `step` from all three sets. */
void strait_snapshot_inventory_trim(strait_snapshot_inventory *inventory, int64_t step);
