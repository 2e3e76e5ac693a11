/* holding.h - which images of a stage a worker has in memory, and from where one is restored. */
#pragma once

#include <stdint.h>

enum {
    STRAIT_SWARM_IMAGES = 3 // of one stage in one worker, at most
};

/* Images of one stage. Plain data. */
typedef struct strait_swarm_holding {
    int stage; // -1: none
    int n;
    int64_t steps[STRAIT_SWARM_IMAGES];
    uint32_t born[STRAIT_SWARM_IMAGES]; // the epoch each was made in
} strait_swarm_holding;

/* All that a worker holds: images of its own stage, and copies of its neighbours'. */
typedef struct strait_swarm_held {
    strait_swarm_holding own, before, behind;
} strait_swarm_held;

typedef enum strait_swarm_source {
    STRAIT_SWARM_FROM_SEED,   // step 0 needs no image
    STRAIT_SWARM_FROM_SELF,   // its own image
    STRAIT_SWARM_FROM_BEFORE, // a copy that the stage before gives
    STRAIT_SWARM_FROM_BEHIND, // likewise, the stage behind
    STRAIT_SWARM_FROM_HOST,   // the checkpoint
} strait_swarm_source;

int strait_holding_has(const strait_swarm_holding *holding, int stage, int64_t step);

/* Forgets images above `step`. */
void strait_holding_trim(strait_swarm_holding *holding, int64_t step);

strait_swarm_held strait_held_nothing(void);
int strait_held_has_copy(const strait_swarm_held *held, int stage, int64_t step);
void strait_held_trim(strait_swarm_held *held, int64_t step);
