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
