/* replicated_rig.h - two stages of which each has two replicas: 0 and 2, 1 and 3. */
#pragma once

#include "replicas_rig.h"

static void help(int slot, int stage) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = slot, .stage = stage});
}

/* Two stages, of which each has two replicas after the first steps. */
static void begin_replicated(void) {
    begin_with_stages(STAGES, 4);
    c.config.replicas_limit = 8;
    applied = 0;
    for (int i = 0; i < 3; i++)
        step_once();
    help(2, 0);
    help(3, 1);
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
}

static void lose(int slot) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
}

/* The step that was begun is computed again, and none before it. */
static void expect_no_step_back(void) {
    settle();
    assert_int_equal(c.replay.n_late, 0);
    assert_int_equal(c.step, applied);
    assert_int_equal(c.replay.n_stage_steps, 0);
    step_once();
}
