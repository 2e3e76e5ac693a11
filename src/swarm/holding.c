#include "swarm/holding.h"

int strait_holding_has(const strait_swarm_holding *holding, int stage, int64_t step) {
    if (holding->stage != stage) return 0;
    for (int i = 0; i < holding->n; i++)
        if (holding->steps[i] == step) return 1;
    return 0;
}

void strait_holding_trim(strait_swarm_holding *holding, int64_t step) {
    int n = 0;
    for (int i = 0; i < holding->n; i++) {
        if (holding->steps[i] > step) continue;
        holding->steps[n] = holding->steps[i];
        holding->born[n++] = holding->born[i];
    }
    holding->n = n;
}

strait_swarm_held strait_held_nothing(void) {
    const strait_swarm_holding none = {.stage = -1};
    return (strait_swarm_held){none, none, none};
}

int strait_held_has_copy(const strait_swarm_held *held, int stage, int64_t step) {
    return strait_holding_has(&held->before, stage, step) ||
           strait_holding_has(&held->behind, stage, step);
}

void strait_held_trim(strait_swarm_held *held, int64_t step) {
    strait_holding_trim(&held->own, step);
    strait_holding_trim(&held->before, step);
    strait_holding_trim(&held->behind, step);
}
