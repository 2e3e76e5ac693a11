/* crossing_hash.h - digests of what crosses one side of a boundary in a step, by groups of
 * microbatches: whichever replicas of the two stages exchange a group, both have the same digest of
 * it. One thread uses it, that of its boundary. */
#pragma once

#include "base/digest/sha256.h"
#include "net/core/msg.h"
#include "plan/groups.h"

typedef enum strait_crossing_way {
    STRAIT_CROSSING_SENT,
    STRAIT_CROSSING_RECEIVED,
    STRAIT_CROSSING_WAYS
} strait_crossing_way;

struct strait_crossing_hash { // zeroed hashes nothing
    int is_on;
    /* Of the microbatches of each group, in their order; zeros: none. */
    strait_digest groups[STRAIT_CROSSING_WAYS][STRAIT_GROUPS_MAX];
};

/* A step begins. */
void strait_crossing_hash_begin(struct strait_crossing_hash *hash);

/* Adds a crossing. `groups` NULL: there is one group. */
strait_err strait_crossing_hash_add(struct strait_crossing_hash *hash, strait_crossing_way way,
                                    const strait_groups *groups, const struct strait_msg *msg);

/* The digest of a step: of those of its groups. */
strait_err strait_crossing_hash_step(const strait_digest *groups, int n_groups, strait_digest *out);
