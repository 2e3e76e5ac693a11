/* Replicas that train on their own, in whole pipelines: one that loses a worker ends, another takes
 * the place of the first, and a new one begins from the first one's snapshot. */
#include "pipelines_rig.h"

static void lose(int slot) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
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

/* A worker that has asked to leave does not escape that: it may not be back before the others. */
static void one_that_is_leaving_is_left_out_too(void **state) {
    (void)state;
    for (int slot = 2; slot < 6; slot++) {
        begin_pipelines();
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = slot});
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LEFT_OUT, .worker = slot});
        assert_non_null(find(STRAIT_SWARM_DISCONNECT, slot)); // it waits for nothing more
        assert_false(c.workers[slot].is_connected);
        join(slot, strait_snapshot_inventory_empty());
        assert_true(c.workers[slot].away_until_ns > now);
        assert_true(c.workers[slot ^ 1].is_connected && c.workers[slot ^ 1].away_until_ns > now);
        settle();
        assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
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
        cmocka_unit_test(one_that_is_leaving_is_left_out_too),
        cmocka_unit_test(bad_values_cost_their_own_pipeline),
        cmocka_unit_test(rejected_values_cost_their_own_pipeline),
        cmocka_unit_test(the_last_pipeline_stays),
        cmocka_unit_test(pipelines_begin_with_given_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
