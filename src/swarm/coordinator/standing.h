/* standing.h - how much the coordinator believes a worker when two workers contradict each other
 * and no recomputation can tell which of them lies. Plain data, zeroed for a new worker. */
#pragma once

#include "net/core/identity.h"

#include <stdint.h>

enum {
    STRAIT_SWARM_OPPONENTS = 4 // in disputes about averages, remembered
};

typedef struct strait_swarm_standing {
    int64_t n_steps;     // that were committed with its part in them
    int64_t owns_since;  // the committed steps when it became the owner of its stage
    int64_t marked_step; // the committed steps when it last contradicted somebody
    int n_pardons;       // times that this was forgotten
    /* Until then its stage and those beside it get no more replicas, and it does not become one. */
    int64_t alone_until_ns;
    int n_alone;        // times that it was left so, less those that steps since have undone
    int64_t alone_step; // the committed steps at the last of them, or when one was undone
    int withholds;      // it gives nothing to audits: it loses its stage when there is a spare
    int n_kept;         // generations that it kept it since, because a move would have lost steps
    /* In an average: the replica of its stage that it waits for, or lacked something from when it
     * replied, from 1; 0: none. */
    int awaited_replica;
    int said_side; // of the stage that it says it waits for, also if that has replied: -1, 1
    /* Workers with whom it was in dispute about what one sent to the other in an average, and how
     * often it was left out for one. */
    strait_fingerprint opponents[STRAIT_SWARM_OPPONENTS];
    int n_opponents, n_lost;
} strait_swarm_standing;
