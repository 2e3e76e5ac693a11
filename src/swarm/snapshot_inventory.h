/* holding.h - which images of a stage a worker has in memory, and from where one is restored. */
#pragma once

#include <stdint.h>

enum {
    STRAIT_SWARM_SNAPSHOTS = 3 // of one stage in one worker, at most
};

/* Images of one stage. Plain data. */
typedef struct strait_snapshot_set {
    int stage; // -1: none
    int n;
    int64_t steps[STRAIT_SWARM_SNAPSHOTS];
    uint32_t generations[STRAIT_SWARM_SNAPSHOTS]; // the epoch each was made in
} strait_snapshot_set;

/* All that a worker holds: images of its own stage, and copies of its neighbours'. */
typedef struct strait_snapshot_inventory {
    strait_snapshot_set own, prev, next;
} strait_snapshot_inventory;

typedef enum strait_swarm_source {
    STRAIT_SWARM_FROM_SEED, // step 0 needs no image
    STRAIT_SWARM_FROM_SELF, // its own image
    STRAIT_SWARM_FROM_PREV, // a copy that the stage before gives
    STRAIT_SWARM_FROM_NEXT, // likewise, the stage behind
    STRAIT_SWARM_FROM_HOST, // the checkpoint
} strait_swarm_source;

int strait_snapshot_set_has(const strait_snapshot_set *holding, int stage, int64_t step);

/* Forgets images above `step`. */
void strait_snapshot_set_trim(strait_snapshot_set *holding, int64_t step);

strait_snapshot_inventory strait_snapshot_inventory_empty(void);
int strait_snapshot_inventory_has_copy(const strait_snapshot_inventory *inventory, int stage,
                                       int64_t step);
void strait_snapshot_inventory_trim(strait_snapshot_inventory *inventory, int64_t step);
