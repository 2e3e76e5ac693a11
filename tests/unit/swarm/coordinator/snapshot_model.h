/* snapshot_model.h - the snapshots of simulated workers: what they would hold, without the bytes.
 */
#pragma once

#include "swarm/snapshot/inventory.h"

#include <string.h>

/* The bytes of a step that is computed again may differ. */
static inline strait_digest digest_of(int stage, int64_t step, uint32_t generation) {
    strait_digest digest = {{(unsigned char)stage}};
    memcpy(digest.bytes + 1, &step, sizeof step);
    memcpy(digest.bytes + 9, &generation, sizeof generation);
    return digest;
}

/* Adds a snapshot; of three the oldest is dropped. */
static inline void add_snapshot(strait_snapshot_set *set, int stage, int64_t step,
                                uint32_t generation) {
    if (set->stage != stage) *set = (strait_snapshot_set){.stage = stage};
    if (strait_snapshot_set_has(set, stage, step)) return;
    if (set->n == 2) strait_snapshot_set_remove(set, set->steps[0] > set->steps[1]);
    set->steps[set->n] = step;
    set->generations[set->n] = generation;
    set->digests[set->n++] = digest_of(stage, step, generation);
}
