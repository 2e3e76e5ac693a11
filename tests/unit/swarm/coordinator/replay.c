/* Which stages keep their state in a new generation, and when all are rolled back instead. */
#include "coordinator_rig.h"

enum {
    STAGES = 4,
    KEPT = 3,    // the step that all have snapshots of
    REACHED = 7, // steps committed
    LOST = 2     // the stage whose owner is lost
};

static void set_live(int stage, int64_t step, int is_pending, int64_t first_kept) {
    const int slot = c.owner[stage];
    strait_snapshot_inventory inventory = c.workers[slot].inventory;
    inventory.live = (strait_live_state){stage, step, c.generation, is_pending, first_kept};
    heartbeat(slot, inventory, 0, 0);
}

static void set_all_live(int64_t step, int is_pending, int64_t first_kept) {
    for (int i = 0; i < STAGES; i++)
        set_live(i, step, is_pending, first_kept);
}

/* The next stage holds a copy of each snapshot, and the one before the last that of the last. */
static void hold_copies(void) {
    for (int i = 0; i < STAGES; i++) {
        strait_snapshot_inventory inventory = c.workers[c.owner[i]].inventory;
        if (i > 0)
            inventory.prev = (strait_snapshot_set){i - 1, 1, {KEPT}, {c.generation}, {{{0}}}};
        if (i == STAGES - 2)
            inventory.next = (strait_snapshot_set){i + 1, 1, {KEPT}, {c.generation}, {{{0}}}};
        heartbeat(c.owner[i], inventory, 0, 0);
    }
}

/* Four stages that have committed some steps, and a spare. */
static void begin_run(void) {
    begin_with_stages(STAGES, STAGES + 2);
    for (int64_t step = 0; step < REACHED; step++) {
        run_step(step, step + 1 == KEPT);
        if (step + 1 == KEPT) hold_copies();
    }
    set_all_live(REACHED, 0, 0);
    assert_int_equal(c.committed, REACHED);
}

/* All owners reply until the stages are to be restored. */
static void reach_restore(void) {
    for (int n = 0; n < 8 && c.phase != STRAIT_PHASE_RESTORE; n++)
        for (int i = 0; i < STAGES; i++)
            if (c.is_awaited[i] && c.phase != STRAIT_PHASE_RESTORE) reply(c.owner[i], STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_RESTORE);
}

static void lose(int stage) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[stage]});
    reach_restore();
}

static void expect_rollback(int64_t step) {
    assert_int_equal(c.replay.until, -1);
    assert_int_equal(c.step, step);
    for (int i = 0; i < STAGES; i++)
        assert_int_not_equal(c.source[i], STRAIT_SWARM_FROM_LIVE);
}

static void expect_replay(int stage, int64_t from, int64_t until) {
    assert_int_equal(c.replay.until, until);
    assert_int_equal(c.replay.from, from);
    assert_int_equal(c.step, from);
    for (int i = 0; i < STAGES; i++) {
        assert_int_equal(c.replay.is_late[i], i == stage);
        assert_int_equal(c.source[i] == STRAIT_SWARM_FROM_LIVE, i != stage);
        const strait_swarm_action *command = find(STRAIT_SWARM_COMMAND, c.owner[i]);
        assert_non_null(command);
        assert_int_equal(command->source, c.source[i]);
        assert_int_equal(command->step, from);
        if (i != stage) assert_int_equal(command->live_step, until);
        assert_int_equal(command->gives_prev, i - 1 == stage && from > 0);
    }
}

/* Computes the steps that are late, as the driver does. */
static void replay_steps(void) {
    while (c.step < c.replay.until) {
        const int64_t step = c.step;
        const int is_last = step + 1 == c.replay.until;
        for (int is_update = 0; is_update < 2; is_update++) {
            feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL,
                                      .goal = {.stage = -1,
                                               .step = step,
                                               .is_update = is_update,
                                               .is_begin = !is_update,
                                               .is_replay = !is_update || !is_last}});
            get_ready();
        }
        assert_int_equal(c.step, step + 1);
    }
}

static void only_the_lost_stage_restores(void **state) {
    (void)state;
    for (int lost = 0; lost < STAGES; lost++) {
        begin_run();
        lose(lost);
        if (lost == STAGES - 1) { // the stage before it holds its copy
            assert_int_equal(c.source[lost], STRAIT_SWARM_FROM_PREV);
            assert_int_equal(c.replay.n_stage_steps, REACHED - KEPT);
        } else {
            expect_replay(lost, KEPT, REACHED);
            assert_int_equal(c.source[lost], STRAIT_SWARM_FROM_NEXT);
        }
        assert_int_equal(c.replay.n_rolled_back, STAGES * (REACHED - KEPT));
        get_ready();
        assert_int_equal(find(STRAIT_SWARM_RESTORED, -1)->step, KEPT);
        replay_steps();
        assert_int_equal(c.step, REACHED);
        assert_int_equal(c.committed, REACHED);
        run_step(REACHED, 0);
        assert_int_equal(c.committed, REACHED + 1);
    }
}

static void rolls_back_when_crossings_are_no_longer_kept(void **state) {
    (void)state;
    for (int beside = LOST - 1; beside <= LOST + 1; beside += 2) {
        begin_run();
        set_live(beside, REACHED, 0, KEPT);
        set_live(LOST == beside + 1 ? 0 : STAGES - 1, REACHED, 0, KEPT); // not both are beside it
        lose(LOST);
        expect_replay(LOST, KEPT, REACHED);
        begin_run();
        set_live(beside, REACHED, 0, KEPT + 1);
        lose(LOST);
        expect_rollback(KEPT);
        assert_int_equal(c.replay.n_stage_steps, STAGES * (REACHED - KEPT));
    }
    begin_run(); // nobody needs those of the first stage
    set_live(0, REACHED, 0, KEPT + 1);
    lose(LOST);
    expect_replay(LOST, KEPT, REACHED);
}

static void rolls_back_when_the_driver_has_forgotten_the_steps(void **state) {
    (void)state;
    begin_run();
    c.history_first = KEPT;
    lose(LOST);
    expect_replay(LOST, KEPT, REACHED);
    begin_run();
    c.history_first = KEPT + 1;
    lose(LOST);
    expect_rollback(KEPT);
}

/* An update was sent and some have applied it: the others have the gradients, so nobody repeats the
 * step but the lost stage. */
static void continues_after_an_update_that_some_have_applied(void **state) {
    (void)state;
    for (int n_applied = 0; n_applied < STAGES; n_applied++) {
        begin_run();
        goal(REACHED, 0);
        get_ready();
        goal(REACHED, 1);
        for (int i = 0; i < STAGES; i++)
            set_live(i, REACHED + (i < n_applied), i >= n_applied, 0);
        lose(LOST);
        expect_replay(LOST, KEPT, REACHED + 1);
        assert_true(c.replay.must_update);
        get_ready();
        replay_steps();
        assert_int_equal(c.committed, REACHED + 1);
    }
}

/* Gradients of the step are complete at some, but the update was never sent: the step is repeated.
 */
static void repeats_a_step_without_its_update(void **state) {
    (void)state;
    begin_run();
    goal(REACHED, 0);
    for (int i = 0; i < STAGES; i++)
        set_live(i, REACHED, i > 0, 0);
    lose(LOST);
    expect_replay(LOST, KEPT, REACHED);
    assert_false(c.replay.must_update);
}

/* A stage whose state is not that of the step is late, too; two of them compute side by side. */
static void stages_without_a_state_are_late_too(void **state) {
    (void)state;
    begin_run();
    set_live(LOST + 1, -1, 0, 0);
    lose(LOST);
    assert_int_equal(c.replay.until, REACHED);
    assert_int_equal(c.replay.n_late, 2);
    assert_true(c.replay.is_late[LOST] && c.replay.is_late[LOST + 1]);
    assert_int_equal(c.source[LOST + 1], STRAIT_SWARM_FROM_SELF);
    assert_int_equal(c.replay.n_stage_steps, 2 * (REACHED - KEPT));
}

/* Values that may be wrong are computed again by all. */
static void rolls_back_when_values_are_in_doubt(void **state) {
    (void)state;
    static const strait_swarm_event_kind kinds[] = {STRAIT_SWARM_INVALID_DATA,
                                                    STRAIT_SWARM_NONFINITE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        begin_run();
        goal(REACHED, 0);
        feed((strait_swarm_event){.kind = kinds[i], .worker = c.owner[LOST]});
        reach_restore();
        expect_rollback(KEPT);
    }
    begin_run();
    goal(REACHED, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = c.owner[LOST],
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .is_blaming = 1,
                              .blamed = LOST + 1});
    reach_restore();
    expect_rollback(KEPT);
}

/* After a replay that gave something else, or failed, or was tried several times, all stages are
 * rolled back; after a new step the next one is allowed again. */
static void falls_back_after_a_replay_that_failed(void **state) {
    (void)state;
    begin_run();
    lose(LOST);
    get_ready();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLAY_DIFFERS});
    reach_restore();
    expect_rollback(KEPT);
    get_ready();
    for (int64_t step = KEPT; step <= REACHED; step++)
        run_step(step, 0);
    set_all_live(REACHED + 1, 0, 0);
    join(STAGES + 2, strait_snapshot_inventory_empty());
    lose(0);
    assert_int_equal(c.replay.until, REACHED + 1);

    begin_run();
    lose(LOST);
    reply(c.owner[0], STRAIT_EPROTO); // its state is not what it claimed
    now += 10 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    recover();
    assert_int_equal(c.replay.until, -1);
}

static void gives_up_after_some_replays(void **state) {
    (void)state;
    begin_run();
    for (int i = 0; i < STRAIT_SWARM_REPLAYS + 1; i++) {
        join(STAGES + 3 + i, strait_snapshot_inventory_empty());
        now += 10 * S;
        for (int k = 0; k < STRAIT_SWARM_WORKERS; k++)
            if (c.workers[k].is_connected) heartbeat(k, c.workers[k].inventory, 1, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[LOST]});
        now += 10 * S;
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        reach_restore();
        if (i < STRAIT_SWARM_REPLAYS)
            assert_int_equal(c.replay.until, REACHED);
        else
            assert_int_equal(c.replay.until, -1);
    }
}

/* A worker that was away while the others went back has a state that belongs to no run. */
static void ignores_a_state_of_steps_that_were_rolled_back(void **state) {
    (void)state;
    begin_run();
    strait_snapshot_inventory old = c.workers[c.owner[0]].inventory;
    old.live = (strait_live_state){0, REACHED, c.generation, 0, 0};
    c.is_replay_blocked = 1;
    lose(LOST);
    expect_rollback(KEPT);
    get_ready();
    heartbeat(c.owner[0], old, 2, 0);
    assert_int_equal(c.workers[c.owner[0]].inventory.live.step, -1);
    old.live.step = KEPT;
    heartbeat(c.owner[0], old, 3, 0);
    assert_int_equal(c.workers[c.owner[0]].inventory.live.step, KEPT);
    old.live = (strait_live_state){0, REACHED, c.generation, 0, 0};
    heartbeat(c.owner[0], old, 4, 0);
    assert_int_equal(c.workers[c.owner[0]].inventory.live.step, REACHED);
}

/* A new coordinator does not know how earlier steps ended. */
static void rolls_back_after_a_restart(void **state) {
    (void)state;
    strait_swarm_durable durable;
    begin_run();
    strait_snapshot_inventory inventories[STAGES];
    for (int i = 0; i < STAGES; i++)
        inventories[i] = c.workers[c.owner[i]].inventory;
    strait_coordinator_durable(&c, &durable);
    const strait_swarm_config config = c.config;
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    for (int i = 0; i < STAGES; i++)
        join(i, inventories[i]);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_START});
    reach_restore();
    expect_rollback(KEPT);
    get_ready();
    assert_int_equal(c.history_first, KEPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_lost_stage_restores),
        cmocka_unit_test(rolls_back_when_crossings_are_no_longer_kept),
        cmocka_unit_test(rolls_back_when_the_driver_has_forgotten_the_steps),
        cmocka_unit_test(continues_after_an_update_that_some_have_applied),
        cmocka_unit_test(repeats_a_step_without_its_update),
        cmocka_unit_test(stages_without_a_state_are_late_too),
        cmocka_unit_test(rolls_back_when_values_are_in_doubt),
        cmocka_unit_test(falls_back_after_a_replay_that_failed),
        cmocka_unit_test(gives_up_after_some_replays),
        cmocka_unit_test(ignores_a_state_of_steps_that_were_rolled_back),
        cmocka_unit_test(rolls_back_after_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
