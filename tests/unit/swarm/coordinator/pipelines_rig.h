/* pipelines_rig.h - three pipelines of two workers, which train on their own and average. */
#pragma once

#include "replicas_rig.h"

static void complete(int first, int second) {
    const int pipeline = strait_coordinator_free_pipeline(&c);
    const int slots[STAGES] = {first, second};
    for (int i = 0; i < STAGES; i++)
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_HELP, .worker = slots[i], .stage = i, .pipeline = pipeline});
}

/* Three pipelines of six workers: 0 and 1, 2 and 3, 4 and 5. */
static void begin_pipelines(void) {
    begin_with_stages(STAGES, 6);
    c.config.replicas_limit = 4;
    c.config.has_pipelines = 1;
    c.workers[0].keeps_state = c.workers[1].keeps_state = 1; // set before the rig knew of pipelines
    applied = 0;
    step_once();
    complete(2, 3);
    complete(4, 5);
    step_once();
    for (int i = 0; i < STAGES; i++)
        assert_int_equal(strait_coordinator_n_replicas(&c, i), 3);
    for (int r = 0; r < 3; r++)
        assert_int_equal(strait_coordinator_pipeline(&c, r), r);
}
