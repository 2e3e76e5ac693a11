/* inventory.c - see inventory.h. The coordinator and the workers both trim, so
 * that they agree on what exists before the next heartbeat arrives. */
#include "swarm/snapshot/inventory.h"

/* Returns the index of the snapshot of `stage` at `step`; -1: the set does not have it. */
static int find(const strait_snapshot_set *set, int stage, int64_t step) {
    if (set->stage != stage) return -1;
    for (int i = 0; i < set->n; i++)
        if (set->steps[i] == step) return i;
    return -1;
}

int strait_snapshot_set_has(const strait_snapshot_set *set, int stage, int64_t step) {
    return find(set, stage, step) >= 0;
}

int strait_snapshot_set_has_digest(const strait_snapshot_set *set, int stage, int64_t step,
                                   const strait_digest *digest) {
    const int i = find(set, stage, step);
    return i >= 0 && strait_digest_equal(&set->digests[i], digest);
}

void strait_snapshot_set_remove(strait_snapshot_set *set, int i) {
    const int last = --set->n;
    set->steps[i] = set->steps[last];
    set->generations[i] = set->generations[last];
    set->digests[i] = set->digests[last];
}

/* Steps after the restored one are computed again, and their values may differ. */
void strait_snapshot_set_trim(strait_snapshot_set *set, int64_t step) {
    for (int i = set->n - 1; i >= 0; i--)
        if (set->steps[i] > step) strait_snapshot_set_remove(set, i);
}

/* Not zeros: stage 0 exists. */
strait_snapshot_inventory strait_snapshot_inventory_empty(void) {
    const strait_snapshot_set none = {.stage = -1};
    const strait_live_state lost = {.stage = -1, .step = -1};
    return (strait_snapshot_inventory){none, none, none, lost};
}

int strait_snapshot_inventory_has_copy(const strait_snapshot_inventory *inventory, int stage,
                                       int64_t step, const strait_digest *digest) {
    return strait_snapshot_set_has_digest(&inventory->prev, stage, step, digest) ||
           strait_snapshot_set_has_digest(&inventory->next, stage, step, digest);
}

void strait_snapshot_inventory_trim(strait_snapshot_inventory *inventory, int64_t step) {
    strait_snapshot_set_trim(&inventory->own, step);
    strait_snapshot_set_trim(&inventory->prev, step);
    strait_snapshot_set_trim(&inventory->next, step);
}
