/* Replicas that train on their own, in whole pipelines: one that loses a worker ends, another takes
 * the place of the first, and a new one begins from the first one's snapshot. */
#include "replicas_rig.h"

static void complete(int first, int second) {
    const int pipeline = strait_coordinator_free_pipeline(&c);
    const int slots[STAGES] = {first, second};
    for (int i = 0; i < STAGES; i++)
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_HELP, .worker = slots[i], .stage = i, .pipeline = pipeline});
}

static void lose(int slot) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
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

static void expect_pipelines(int first, int second, int n) {
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), n);
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), n);
    assert_int_equal(strait_coordinator_pipeline(&c, 0), first);
    if (n > 1) assert_int_equal(strait_coordinator_pipeline(&c, 1), second);
}

/* Whoever is lost: its pipeline ends, all others continue with the state that they have. */
static void a_lost_worker_ends_its_pipeline_alone(void **state) {
    (void)state;
    for (int slot = 0; slot < 6; slot++) {
        begin_pipelines();
        const int mate = slot ^ 1;
        goal(applied, 0);
        lose(slot);
        settle();
        assert_int_equal(c.replay.n_late, 0);
        assert_int_equal(c.step, applied);
        assert_int_equal(c.replay.n_stage_steps, 0);
        assert_int_equal(strait_coordinator_stage_of(&c, mate), -1);
        const int pipeline = slot / 2;
        expect_pipelines(pipeline == 0 ? 1 : 0, pipeline == 2 ? 1 : 2, 2);
        if (pipeline == 0) {
            assert_int_equal(c.owner[0], 2);
            assert_int_equal(c.owner[1], 3);
        }
        step_once();
    }
}

/* The state of a worker that left its pipeline is not that of another. */
static void spares_bring_no_state_into_a_pipeline(void **state) {
    (void)state;
    begin_pipelines();
    lose(1);
    settle();
    step_once();
    join(1, strait_snapshot_inventory_empty());
    assert_int_equal(strait_coordinator_free_pipeline(&c), 0);
    complete(0, 1); // worker 0 still has what it computed
    goal(applied, 0);
    for (int n = 0; n < 12 && c.phase != STRAIT_PHASE_RESTORE; n++)
        for (int slot = 0; slot < 6; slot++)
            if (c.phase != STRAIT_PHASE_RESTORE && strait_coordinator_awaits(&c, slot)) {
                beat(slot, c.phase == STRAIT_PHASE_SNAPSHOT);
                reply(slot, STRAIT_OK);
            }
    const strait_swarm_action *returned = find(STRAIT_SWARM_COMMAND, 0);
    assert_non_null(returned);
    assert_int_equal(returned->source, STRAIT_SWARM_FROM_REPLICA);
    assert_int_equal(find(STRAIT_SWARM_COMMAND, 4)->source, STRAIT_SWARM_FROM_LIVE);
    settle();
    expect_pipelines(1, 0, 3);
}

/* When the last complete pipeline loses a worker, a spare takes the stage as without pipelines: all
 * stages go back, because averages cannot be computed again by one stage alone. */
static void the_last_pipeline_goes_back(void **state) {
    (void)state;
    begin_pipelines();
    lose(3);
    settle();
    lose(5);
    settle();
    expect_pipelines(0, 0, 1);
    step_once();
    lose(1);
    settle();
    assert_int_equal(c.replay.until, -1);
    assert_true(c.step < applied);
}

static void whoever_gets_no_average_is_left_out(void **state) {
    (void)state;
    for (int pipeline = 0; pipeline < 3; pipeline++) {
        begin_pipelines();
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LEFT_OUT, .worker = 2 * pipeline});
        now += S;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        settle();
        expect_pipelines(pipeline == 0 ? 1 : 0, pipeline == 2 ? 1 : 2, 2);
        assert_int_equal(strait_coordinator_stage_of(&c, 2 * pipeline), -1);
        assert_int_equal(strait_coordinator_stage_of(&c, 2 * pipeline + 1), -1);
        assert_true(c.workers[2 * pipeline].is_connected);
        assert_int_equal(c.step, applied);
    }
}

static void pass_a_second(void) {
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    settle();
}

/* Checks that a pipeline is gone for a while, and that the others have gone on where they were. */
static void expect_left_out(int pipeline) {
    expect_pipelines(pipeline == 0 ? 1 : 0, pipeline == 2 ? 1 : 2, 2);
    assert_int_equal(c.step, applied);
    assert_int_equal(c.replay.n_stage_steps, 0);
    for (int i = 0; i < STAGES; i++) {
        const strait_swarm_worker *worker = &c.workers[2 * pipeline + i];
        assert_true(worker->is_connected && worker->away_until_ns > now);
        assert_int_equal(strait_coordinator_stage_of(&c, 2 * pipeline + i), -1);
    }
    step_once();
}

/* Values that cannot be used cost the pipeline that has them; a worker whom it happens to again is
 * not used before others. */
static void bad_values_cost_their_own_pipeline(void **state) {
    (void)state;
    for (int slot = 0; slot < 6; slot++) {
        begin_pipelines();
        goal(applied, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_BAD_VALUES, .worker = slot});
        pass_a_second();
        expect_left_out(slot / 2);
        assert_int_equal(c.workers[slot].n_penalties, 1);
        assert_int_equal(c.workers[slot ^ 1].n_penalties, 0);
        assert_false(c.workers[slot].is_suspect);
        now += 20 * S;
        for (int k = 0; k < 6; k++)
            heartbeat(k, c.workers[k].inventory, 7, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        complete(slot & ~1, slot | 1);
        step_once();
        assert_int_equal(strait_coordinator_n_replicas(&c, 0), 3);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_BAD_VALUES, .worker = slot});
        assert_true(c.workers[slot].is_suspect);
        assert_false(c.workers[slot ^ 1].is_suspect);
    }
}

/* Both ends of a boundary are in one pipeline: the others have nothing to do with it. */
static void rejected_values_cost_their_own_pipeline(void **state) {
    (void)state;
    for (int slot = 0; slot < 6; slot++) {
        begin_pipelines();
        goal(applied, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                                  .worker = slot,
                                  .generation = c.generation,
                                  .sequence = c.sequence,
                                  .is_blaming = 1,
                                  .blamed = slot % 2 == 0});
        pass_a_second();
        expect_left_out(slot / 2);
    }
}

/* The last pipeline is not left out: nobody could take its place. */
static void the_last_pipeline_stays(void **state) {
    (void)state;
    begin_pipelines();
    lose(3);
    settle();
    lose(5);
    settle();
    step_once();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_BAD_VALUES, .worker = 0});
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEFT_OUT, .worker = 1});
    expect_pipelines(0, 0, 1);
    assert_int_equal(c.owner[0], 0);
    step_once();
}

/* Its phases send nothing, or all weights: the time of one is no limit for the next. */
static void an_average_may_take_as_long_as_its_bytes(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.snapshot_bytes[i] = 50e6; // 50 s at the slowest rate
    for (int phase = 0; phase < 2; phase++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        for (int s = 0; s < phase * 60; s += 5) {
            now += 5 * S;
            for (int slot = 0; slot < 6; slot++) // messages arrive
                heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        settle();
        for (int slot = 0; slot < 6; slot++)
            assert_true(c.workers[slot].is_connected);
    }
}

/* At 32 bits over slow links the workers wait for each other for longer than a snapshot takes, at 2
 * bits not so long, and then say who is late: until then, and no longer, the coordinator waits. */
static void an_average_may_take_as_long_as_its_workers_wait(void **state) {
    (void)state;
    for (int is_over = 0; is_over < 2; is_over++) {
        begin_pipelines();
        for (int i = 0; i < STAGES; i++) {
            c.config.snapshot_bytes[i] = is_over ? 500e6 : 1e6;
            c.config.average_ns[i] = 300 * S;
        }
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        for (int s = 0; s < 300 + 20 * is_over; s += 5) {
            now += 5 * S;
            for (int slot = 0; slot < 6; slot++) // messages arrive
                heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        int n_connected = 0;
        for (int slot = 0; slot < 6; slot++)
            n_connected += c.workers[slot].is_connected;
        assert_int_equal(n_connected == 6, !is_over);
    }
}

/* Heartbeats with progress come from all workers for so many seconds. */
static void beat_for(int seconds) {
    for (int s = 0; s < seconds; s += 5) {
        now += 5 * S;
        for (int slot = 0; slot < 6; slot++)
            heartbeat(slot, c.workers[slot].inventory, (uint32_t)s + 1, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
}

/* Large weights may take hours over a slow link. One worker that never replies, and sends
 * heartbeats with progress, does not take so long once it is the only one. */
static void an_average_does_not_wait_for_one_silent_worker(void **state) {
    (void)state;
    for (int silent = 0; silent < 6; silent++) {
        begin_pipelines();
        for (int i = 0; i < STAGES; i++)
            c.config.average_ns[i] = 9720 * S; // 600 MB
        c.config.deadline_ns = 60 * S;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 2}});
        beat_for(600); // two of them may exchange something
        for (int slot = 0; slot < 6; slot++)
            if (slot != silent) reply(slot, STRAIT_OK);
        beat_for(60);
        assert_true(c.workers[silent].is_connected);
        beat_for(60);
        assert_false(c.workers[silent].is_connected);
    }
}

/* Nor does one that sends as slowly as a slow link would make all averages as slow. */
static void an_average_takes_little_longer_than_recent_ones(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.average_ns[i] = 9720 * S;
    c.config.deadline_ns = 60 * S;
    for (int again = 0; again < 2; again++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 1}});
        settle(); // at once: that is no measure for what follows
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                  .goal = {.stage = -1, .is_average = 2}});
        beat_for(again ? 800 : 1000);
        for (int slot = 0; slot < 6; slot++)
            assert_true(c.workers[slot].is_connected);
        if (!again) c.phase_began_ns = now - 20 * S; // it took 20 seconds
        if (!again) settle();
    }
    beat_for(120);
    int n_connected = 0;
    for (int slot = 0; slot < 6; slot++)
        n_connected += c.workers[slot].is_connected;
    assert_true(n_connected < 6);
}

/* A run that starts from the weights of another model restores step 0 once more before its first
 * step. That leaves nothing in doubt: pipelines begin with the run. */
static void pipelines_begin_with_given_weights(void **state) {
    (void)state;
    begin_with_stages(STAGES, 4);
    c.config.replicas_limit = 2;
    c.config.has_pipelines = 1;
    c.checkpoint = applied = 0;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_FIRST});
    settle();
    complete(2, 3);
    goal(0, 0);
    settle();
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_worker_ends_its_pipeline_alone),
        cmocka_unit_test(spares_bring_no_state_into_a_pipeline),
        cmocka_unit_test(the_last_pipeline_goes_back),
        cmocka_unit_test(whoever_gets_no_average_is_left_out),
        cmocka_unit_test(bad_values_cost_their_own_pipeline),
        cmocka_unit_test(rejected_values_cost_their_own_pipeline),
        cmocka_unit_test(the_last_pipeline_stays),
        cmocka_unit_test(pipelines_begin_with_given_weights),
        cmocka_unit_test(an_average_may_take_as_long_as_its_bytes),
        cmocka_unit_test(an_average_may_take_as_long_as_its_workers_wait),
        cmocka_unit_test(an_average_does_not_wait_for_one_silent_worker),
        cmocka_unit_test(an_average_takes_little_longer_than_recent_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
