/* The coordinator: invalid values, and reports about them. */
#include "coordinator_rig.h"

/* The owner of `stage` reports invalid values from the owner of `blamed`. */
static void accuse(int stage, int blamed) {
    goal(0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = c.owner[stage],
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .is_blaming = 1,
                              .blamed = blamed});
}

static void bans_after_the_second_violation(void **state) {
    (void)state;
    begin(2);
    const int culprit = c.owner[0];
    const strait_fingerprint key = c.workers[culprit].key;
    accuse(1, 0);
    assert_null(find(STRAIT_SWARM_BAN, -1));
    assert_int_not_equal(c.phase, STRAIT_PHASE_WORK); // the step is recomputed
    recover();
    assert_int_equal(c.owner[0], culprit);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = culprit});
    join(0, strait_snapshot_inventory_empty()); // reconnecting does not clear violations
    recover();
    const int again = strait_coordinator_find(&c, &key);
    const int stage = c.workers[again].stage;
    assert_true(stage >= 0);
    accuse(1 - stage, stage);
    assert_int_equal(find(STRAIT_SWARM_BAN, -1)->worker, again);
    assert_int_equal(strait_coordinator_find(&c, &key), -1);
    join(9, strait_snapshot_inventory_empty());
    recover();
}

static void bans_a_worker_that_reports_several_others(void **state) {
    (void)state;
    begin(4);
    const int liar = c.owner[1];
    for (int i = 0; i < 2; i++) { // two reports ban the first neighbour
        const int neighbour = c.owner[0];
        accuse(1, 0);
        assert_int_equal(find(STRAIT_SWARM_BAN, neighbour) != NULL, i == 1);
        recover();
    }
    for (int i = 0; i < 2; i++) { // the next two count against the reporter
        const int neighbour = c.owner[0];
        accuse(1, 0);
        assert_null(find(STRAIT_SWARM_BAN, neighbour));
        assert_int_equal(find(STRAIT_SWARM_BAN, liar) != NULL, i == 1);
        if (i == 0) recover();
    }
    assert_int_not_equal(c.owner[1], liar);
}

/* A report about a stage that is not a neighbour is ignored. */
static void ignores_reports_about_other_than_neighbours(void **state) {
    (void)state;
    begin(2);
    static const int wrong[] = {-1, 1, 2, 100, STRAIT_RUN_STAGES};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        accuse(1, wrong[i]);
        assert_int_equal(c.phase, STRAIT_PHASE_WORK);
        get_ready();
    }
    assert_int_equal(c.generation, 1);
}

static void counts_invalid_data_found_by_the_driver(void **state) {
    (void)state;
    begin(3);
    const int culprit = c.owner[1];
    for (int i = 0; i < STRAIT_SWARM_VIOLATIONS; i++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = culprit});
        recover();
    }
    assert_int_not_equal(c.owner[1], culprit);
    assert_int_equal(c.workers[culprit].is_known, 0);
}

static void recomputes_nonfinite_steps_on_a_spare(void **state) {
    (void)state;
    begin(2);
    const int suspect = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspect});
    assert_null(find(STRAIT_SWARM_RELEASE, -1)); // there is no spare
    recover();
    assert_int_equal(c.owner[1], suspect);
    assert_int_equal(c.generation, 2);
    join(2, strait_snapshot_inventory_empty());
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspect});
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, suspect);
    recover();
    assert_int_not_equal(c.owner[1], suspect);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    recover(); // a suspect is used if there is no other worker
    assert_int_equal(c.owner[0], suspect);
}

/* A suspect's own snapshots may be the cause: it gets its neighbour's copy or the checkpoint, if
 * necessary of an older step. */
static void never_restores_a_suspect_from_itself(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    run_step(1, 1);
    const int suspect = c.owner[1];
    strait_snapshot_inventory inventory = c.workers[c.owner[0]].inventory;
    inventory.own = (strait_snapshot_set){0, 2, {1, 2}, {1, 1}};
    inventory.next = (strait_snapshot_set){1, 1, {1}, {1}};
    heartbeat(c.owner[0], inventory, 0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspect});
    get_ready();
    assert_int_equal(c.owner[1], suspect); // there is no spare
    assert_int_equal(c.step, 1);           // not 2, of which only the suspect has a snapshot
    inventory.next = strait_snapshot_inventory_empty().next;
    heartbeat(c.owner[0], inventory, 0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(0, inventory);
    get_ready();
    assert_int_equal(c.step, 0); // from the seed
}

/* The worker reported it itself: no violation, and the stage is restored from another source. */
static void keeps_the_owner_of_an_unusable_snapshot(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    const int owner = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(0, strait_snapshot_inventory_empty());
    while (c.phase != STRAIT_PHASE_RESTORE)
        for (int i = 0; i < 2; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    heartbeat(owner, strait_snapshot_inventory_empty(), 0, 0);
    reply(owner, STRAIT_ENONFINITE);
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN); // at once
    get_ready();
    assert_int_equal(c.owner[1], owner);
    assert_int_equal(c.workers[owner].n_violations, 0);
    assert_int_equal(c.step, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bans_after_the_second_violation),
        cmocka_unit_test(bans_a_worker_that_reports_several_others),
        cmocka_unit_test(ignores_reports_about_other_than_neighbours),
        cmocka_unit_test(counts_invalid_data_found_by_the_driver),
        cmocka_unit_test(recomputes_nonfinite_steps_on_a_spare),
        cmocka_unit_test(never_restores_a_suspect_from_itself),
        cmocka_unit_test(keeps_the_owner_of_an_unusable_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
