/* copies.h - part of the coordinator's state: how far the snapshots have arrived that workers
 * receive, and which were rejected. Plain data. */
#pragma once

#include "base/digest/sha256.h"
#include "net/core/identity.h"

#include <stdint.h>

/* A snapshot of which more is to come, in this phase. */
typedef struct strait_swarm_arrival {
    uint64_t counted; // bytes that had arrived when the time that it may take was extended last
    int64_t since_ns; // when that was; 0: nothing has arrived
    int64_t began_ns; // when the first byte had arrived
} strait_swarm_arrival;

/* Of one worker: of the snapshot that it restores, and of the copies of the stages before and after
 * its own. */
typedef struct strait_swarm_receiving {
    strait_swarm_arrival own, prev, next;
} strait_swarm_receiving;

/* A snapshot that was rejected: what `holder` gave as the one with this digest was another. */
typedef struct strait_swarm_unusable {
    strait_fingerprint holder;
    strait_digest digest;
} strait_swarm_unusable;
