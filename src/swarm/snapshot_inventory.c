/* snapshot_inventory.c - see snapshot_inventory.h. The coordinator and the workers both trim, so
 * that they agree on what exists before the next heartbeat arrives. */
#include "swarm/snapshot_inventory.h"

int strait_snapshot_set_has(const strait_snapshot_set *set, int stage, int64_t step) {
    if (set->stage != stage) return 0;
    for (int i = 0; i < set->n; i++)
        if (set->steps[i] == step) return 1;
    return 0;
}

/* Steps after the restored one are computed again, and their values may differ. */
void strait_snapshot_set_trim(strait_snapshot_set *set, int64_t step) {
    int n = 0;
    for (int i = 0; i < set->n; i++) {
        if (set->steps[i] > step) continue;
        set->steps[n] = set->steps[i];
        set->generations[n++] = set->generations[i];
    }
    set->n = n;
}

/* Not zeros: stage 0 exists. */
strait_snapshot_inventory strait_snapshot_inventory_empty(void) {
    const strait_snapshot_set none = {.stage = -1};
    return (strait_snapshot_inventory){none, none, none};
}

int strait_snapshot_inventory_has_copy(const strait_snapshot_inventory *inventory, int stage,
                                       int64_t step) {
    return strait_snapshot_set_has(&inventory->prev, stage, step) ||
           strait_snapshot_set_has(&inventory->next, stage, step);
}

void strait_snapshot_inventory_trim(strait_snapshot_inventory *inventory, int64_t step) {
    strait_snapshot_set_trim(&inventory->own, step);
    strait_snapshot_set_trim(&inventory->prev, step);
    strait_snapshot_set_trim(&inventory->next, step);
}
