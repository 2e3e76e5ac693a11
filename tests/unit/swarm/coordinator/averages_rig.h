/* averages_rig.h - averages of three pipelines in which workers say that others do not send them
 * what they need. */
#pragma once

#include "pipelines_rig.h"

static int is_left_out(int slot) {
    return strait_coordinator_stage_of(&c, slot) < 0;
}

/* What a worker says that lacks something of another one; -1: of nobody. */
static int lacking(int other) {
    return other < 0 ? 0 : STRAIT_SWARM_SAME_STAGE + 1 + c.workers[other].replica;
}

/* Time passes while those that are `late` say whom they wait for, and those that have replied say
 * nothing more. */
static void wait_for_late(const int *lacked, const int *late, int seconds) {
    for (int s = 0; s < seconds && c.phase == STRAIT_PHASE_WORK; s += 5) {
        now += 5 * S;
        for (int i = 0; i < 6; i++)
            heartbeat(i, c.workers[i].inventory, (uint32_t)(now / S),
                      late[i] ? lacking(lacked[i]) : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
}

/* An average in which each worker lacks something of another one, or of nobody (-1). Those that are
 * `late` do not reply. */
static void begin_average(const int *lacked, const int *late, int seconds) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_average = 2}});
    for (int i = 0; i < 6; i++)
        if (!late[i] && strait_coordinator_awaits(&c, i))
            feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                      .worker = i,
                                      .generation = c.generation,
                                      .sequence = c.sequence,
                                      .waits_for = lacking(lacked[i])});
    wait_for_late(lacked, late, seconds);
}
