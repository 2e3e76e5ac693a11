/* snapshot_model.h - the snapshots of simulated workers: what they would hold, without the bytes.
 */
#pragma once

#include "swarm/snapshot/inventory.h"

#include <string.h>

/* Steps of kept crossings in the model: fewer than between some snapshots. */
enum {
    KEPT_STEPS = 10
};

/* A step of gradients was computed: it is pending, and its crossings are kept. */
static inline void live_compute(strait_live_state *live, int64_t step) {
    live->is_pending = 1;
    if (step - live->first_kept >= KEPT_STEPS) live->first_kept = step - KEPT_STEPS + 1;
}

/* The stage was restored to a step in this generation; crossings before it may still be kept. */
static inline void live_restore(strait_live_state *live, int stage, int64_t step,
                                uint32_t generation) {
    const int is_kept = live->stage == stage && live->step >= step && live->first_kept < step;
    *live = (strait_live_state){.stage = stage,
                                .step = step,
                                .generation = generation,
                                .first_kept = is_kept ? live->first_kept : step};
}

/* The worker is given a stage; of another one it keeps nothing. */
static inline void inventory_assign(strait_snapshot_inventory *inventory, int stage) {
    if (inventory->own.stage != stage) inventory->own = (strait_snapshot_set){.stage = stage};
    if (inventory->live.stage != stage)
        inventory->live = (strait_live_state){.stage = -1, .step = -1};
}

/* Snapshots with the same weights have the same bytes, unless they are salted: values that are
 * computed again may differ in their bits. */
static inline strait_digest digest_of(int stage, int64_t step, uint32_t salt, uint64_t weights) {
    strait_digest digest = {{(unsigned char)stage}};
    memcpy(digest.bytes + 1, &step, sizeof step);
    memcpy(digest.bytes + 9, &salt, sizeof salt);
    memcpy(digest.bytes + 13, &weights, sizeof weights);
    return digest;
}

static inline uint64_t weights_in(const strait_digest *digest) {
    uint64_t weights;
    memcpy(&weights, digest->bytes + 13, sizeof weights);
    return weights;
}

/* Adds a snapshot; of three the oldest is dropped. */
static inline void add_snapshot(strait_snapshot_set *set, int64_t step, uint32_t generation,
                                const strait_digest *digest) {
    const int stage = digest->bytes[0];
    if (set->stage != stage) *set = (strait_snapshot_set){.stage = stage};
    if (strait_snapshot_set_has(set, stage, step)) return;
    if (set->n == 2) strait_snapshot_set_remove(set, set->steps[0] > set->steps[1]);
    set->steps[set->n] = step;
    set->generations[set->n] = generation;
    set->digests[set->n++] = *digest;
}
