/* sums_hash.h - digests of what the replicas of a stage put into the sum of the gradients of a
 * step, and of what came out of it, so that each of them can be held to it (swarm/commitment.h).
 *
 * given[r][o] is of all that replica r gives to the owner o of chunks (reduction.h): its sums of
 * groups, those of each part one after the other, and on the last stage its losses for replica 0.
 * A replica knows what it gives, and what others give to it. An auditor, which computes all groups
 * alone, knows what every replica should have given: sums do not depend on who computes them.
 *
 * For gradients of 32 bits in the memory of the host. One thread uses it, that of its runner. */
#pragma once

#include "base/digest/sha256.h"
#include "plan/groups.h"
#include "tensor/param.h"

#include <stdint.h>

enum {
    STRAIT_SUMS_REPLICAS = 8 // most replicas of a stage whose sums are hashed
};

struct strait_sums_hash;

typedef struct strait_sums_hash_spec {
    const strait_groups *groups; // borrowed
    const strait_param *params;  // borrowed
    int n_params;
    int n_replicas;       // of the stage
    int replica;          // whose digests these are; -1: an auditor's, of all
    const double *losses; // one per sequence, on the last stage; NULL elsewhere. Borrowed
    int n_losses;
} strait_sums_hash_spec;

/* Of one step. A replica has its own row and column of `given`, the others are zeros. */
typedef struct strait_sums_work {
    strait_digest given[STRAIT_SUMS_REPLICAS][STRAIT_SUMS_REPLICAS]; // by giver and owner
    strait_digest totals[STRAIT_SUMS_REPLICAS]; // of the summed chunks of each owner
} strait_sums_work;

/* STRAIT_EINVAL: more replicas than STRAIT_SUMS_REPLICAS. */
strait_err strait_sums_hash_open(const strait_sums_hash_spec *spec, struct strait_sums_hash **out);
void strait_sums_hash_close(struct strait_sums_hash **hash); // accepts NULL

/* Forgets what was hashed of a step. */
void strait_sums_hash_reset(struct strait_sums_hash *hash);

/* Adds a chunk of the part that begins with group `leaf`. Chunks of a part come in their order. */
strait_err strait_sums_hash_part(struct strait_sums_hash *hash, int leaf, int chunk,
                                 const float *values);

/* An auditor's: the gradients of a kind (strait_param.is_deferred) hold the sum of a node. It is
 * added if it is a part of one of these owners. */
strait_err strait_sums_hash_node(struct strait_sums_hash *hash, const strait_group_owners *owners,
                                 strait_pairwise_node node, int is_deferred);

/* The gradients hold the sum of all replicas: completes the digests of the step and begins the
 * next. */
strait_err strait_sums_hash_end(struct strait_sums_hash *hash, const strait_group_owners *owners);

/* Those of the last step that ended. Borrowed. */
const strait_sums_work *strait_sums_hash_work(const struct strait_sums_hash *hash);
