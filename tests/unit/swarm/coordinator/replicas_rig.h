/* replicas_rig.h - two stages whose workers, also further replicas, take steps as they are told. */
#pragma once

#include "coordinator_rig.h"

enum {
    STAGES = 2
};

static int64_t applied; // steps that every worker with a stage has applied

/* A heartbeat of a worker that has the state of `applied` steps; with a snapshot of it, if it
 * `keeps` one. */
static void beat(int slot, int keeps) {
    const int stage = strait_coordinator_stage_of(&c, slot);
    strait_snapshot_inventory inventory = c.workers[slot].inventory;
    if (stage >= 0 && c.phase >= STRAIT_PHASE_RESTORE)
        inventory.live = (strait_live_state){stage, applied, c.generation, 0, 0};
    const int is_owner = c.workers[slot].stage >= 0;
    if (keeps && (is_owner || !c.config.has_pipelines)) // averages are kept by the first pipeline
        inventory.own = (strait_snapshot_set){
            .stage = stage, .n = 1, .steps = {applied}, .generations = {c.generation}};
    heartbeat(slot, inventory, 0, 0);
}

/* Everybody replies, owners and further replicas, until the stages are ready. */
static void settle(void) {
    for (int n = 0; n < 16 && c.phase != STRAIT_PHASE_READY; n++)
        for (int slot = 0; slot < 8; slot++) {
            if (!c.workers[slot].is_known || !strait_coordinator_awaits(&c, slot)) continue;
            beat(slot, c.phase == STRAIT_PHASE_SNAPSHOT);
            reply(slot, STRAIT_OK);
        }
    assert_int_equal(c.phase, STRAIT_PHASE_READY);
}

static void step_once(void) {
    const int64_t step = applied;
    do { // as the driver does: replicas may have come instead
        goal(step, 0);
        settle();
    } while (c.goal.is_begin && find(STRAIT_SWARM_RESTORED, -1) != NULL);
    goal(step, 1);
    applied = step + 1;
    settle();
    assert_int_equal(c.committed, applied);
}
