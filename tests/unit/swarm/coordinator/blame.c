/* The coordinator: invalid values, and reports about them. */
#include "coordinator_rig.h"

#include <stdlib.h>

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

/* The owner of stage 1 reports that of stage 0; a spare takes its place and reports the same. */
static void replaces_a_worker_that_two_others_report(void **state) {
    (void)state;
    begin(3);
    const int culprit = c.owner[0];
    const int first = c.owner[1];
    accuse(1, 0);
    assert_null(find(STRAIT_SWARM_BAN, -1));
    assert_int_not_equal(c.phase, STRAIT_PHASE_WORK); // the step is recomputed
    recover();
    assert_int_equal(c.owner[0], culprit);
    assert_int_not_equal(c.owner[1], first);
    accuse(1, 0);
    assert_null(find(STRAIT_SWARM_BAN, -1)); // two may lie as well
    assert_int_equal(c.workers[culprit].stage, -1);
    recover();
    assert_int_equal(c.workers[first].stage, 0);
    assert_int_equal(c.workers[first].n_disputes, 0); // the other side was at fault
}

static void keeps_disputes_of_a_worker_that_reconnects(void **state) {
    (void)state;
    begin(3);
    const int culprit = c.owner[0];
    const strait_fingerprint key = c.workers[culprit].key;
    accuse(1, 0);
    recover();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = culprit});
    recover(); // the first reporter has stage 0
    feed((strait_swarm_event){.kind = STRAIT_SWARM_JOIN,
                              .key = key,
                              .report = &report,
                              .inventory = strait_snapshot_inventory_empty()});
    const int again = strait_coordinator_find(&c, &key);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    recover();
    assert_int_equal(c.workers[again].stage, 0);
    join(8, strait_snapshot_inventory_empty());
    accuse(1, 0);
    assert_int_equal(c.workers[again].stage, -1);
}

/* A single liar reports whomever it can: it loses its stage, also for a second report. */
static void replaces_a_worker_that_reports_two_others(void **state) {
    (void)state;
    begin(3);
    const int liar = c.owner[1];
    accuse(1, 0);
    recover();
    assert_int_equal(c.workers[liar].stage, -1);
    for (int i = 0; i < 2; i++) // it gets a stage again, beside another worker
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[i]});
    join(8, strait_snapshot_inventory_empty());
    recover();
    const int stage = c.workers[liar].stage;
    assert_true(stage >= 0);
    join(9, strait_snapshot_inventory_empty());
    accuse(stage, 1 - stage);
    assert_null(find(STRAIT_SWARM_BAN, -1));
    assert_int_equal(c.workers[liar].stage, -1);
}

/* Without a third worker nobody can tell who is at fault. */
static void bans_nobody_for_one_workers_word(void **state) {
    (void)state;
    begin(2);
    for (int i = 0; i < 8; i++) {
        accuse(1, 0);
        assert_null(find(STRAIT_SWARM_BAN, -1));
        assert_non_null(find(STRAIT_SWARM_LOG, c.owner[0])); // both are named
        assert_non_null(find(STRAIT_SWARM_LOG, c.owner[1]));
        recover();
    }
    join(2, strait_snapshot_inventory_empty());
    const int first = c.owner[1];
    accuse(1, 0);
    recover();
    assert_int_not_equal(c.owner[1], first);
}

/* Without a spare, the two are placed apart: their other neighbours can tell. */
static void separates_workers_that_contradict_each_other(void **state) {
    (void)state;
    begin_with_stages(3, 3);
    const int liar = c.owner[1];
    const int honest = c.owner[0];
    accuse(1, 0);
    recover();
    const int stage = c.workers[liar].stage;
    const int other = stage > 0 ? stage - 1 : 1;
    assert_int_equal(abs(stage - c.workers[honest].stage), 2);
    accuse(stage, other);
    assert_int_equal(c.workers[liar].n_penalties, 1);
    assert_int_equal(c.workers[honest].n_penalties, 0);
    assert_int_equal(c.workers[honest].n_disputes, 0);
}

/* A second report in the same step may name a stage whose owner is gone. */
static void ignores_reports_about_an_abandoned_generation(void **state) {
    (void)state;
    begin_with_stages(3, 3);
    goal(0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = c.owner[1]});
    now += 10 * S;
    get_ready();
    goal(0, 0);
    const int after = c.owner[2];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = c.owner[1]});
    assert_int_equal(c.owner[1], -1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = after,
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .is_blaming = 1,
                              .blamed = 1});
    assert_int_equal(c.workers[after].n_disputes, 0);
}

/* Nobody but a neighbour can have sent anything. */
static void counts_reports_about_other_than_neighbours(void **state) {
    (void)state;
    static const int wrong[] = {-1, 1, 2, 100, STRAIT_RUN_STAGES};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin(3);
        const int liar = c.owner[1];
        accuse(1, wrong[i]);
        assert_int_equal(c.workers[liar].n_violations, 1);
        assert_int_not_equal(c.phase, STRAIT_PHASE_WORK);
        recover();
        accuse(c.workers[liar].stage, STRAIT_RUN_STAGES);
        assert_int_equal(find(STRAIT_SWARM_BAN, -1)->worker, liar);
    }
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

/* Without a spare, another owner computes the stage once the reports go on; the next steps are
 * calm.
 */
static void verifies_repeated_reports_by_exchanging_stages(void **state) {
    (void)state;
    begin(2);
    const int liar = c.owner[1];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c.workers[liar].stage, 1);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = liar});
        recover();
        run_step(c.step, 1);
    }
    assert_int_equal(c.workers[liar].stage, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTED, .worker = liar, .stage = 1});
    assert_int_equal(c.workers[liar].n_violations, 1);
    recover();
    for (int i = 0; i < STRAIT_SWARM_CALM_STEPS; i++)
        run_step(c.step, 1);
    for (int i = 0; i < 2; i++) { // not in a row with those before
        feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = liar});
        recover();
        assert_int_equal(c.workers[liar].stage, 0);
    }
}

/* A worker that lacks the memory for the other stage keeps its own. */
static void exchanges_no_stages_that_do_not_fit(void **state) {
    (void)state;
    begin(2);
    const int liar = c.owner[1];
    c.config.need_bytes[1] = 1e9;
    c.workers[c.owner[0]].report.memory_bytes = 1e8;
    for (int i = 0; i < 5; i++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = liar});
        recover();
        assert_int_equal(c.workers[liar].stage, 1);
    }
}

static void report_false(int worker, int stage) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_CONTRADICTED, .worker = worker, .stage = stage});
}

/* The spare finds the values finite: the report was false. */
static void bans_for_the_second_false_report_of_nonfinite_values(void **state) {
    (void)state;
    begin(3);
    const int liar = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = liar});
    recover();
    report_false(liar, 1);
    assert_int_equal(c.workers[liar].n_violations, 1);
    assert_int_equal(c.phase, STRAIT_PHASE_READY); // a spare's violation disturbs no step
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[1]});
    recover();
    assert_int_equal(c.owner[1], liar);
    report_false(liar, 1);
    assert_int_equal(find(STRAIT_SWARM_BAN, -1)->worker, liar);
}

/* A worker that sends values just below the limit makes its neighbours' overflow when it likes. */
static void suspects_the_neighbour_of_two_false_reporters(void **state) {
    (void)state;
    begin(5);
    const int liar = c.owner[0];
    const int first = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = first});
    recover();
    report_false(first, 1);
    const int second = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = second});
    recover();
    report_false(second, 1);
    assert_int_equal(c.workers[second].n_violations, 0);
    assert_int_equal(c.workers[liar].n_violations, 1);
    assert_int_equal(c.workers[liar].stage, -1);
}

static void clears_a_suspect_whose_report_was_true(void **state) {
    (void)state;
    begin(3);
    const int honest = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = honest});
    recover();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_CONFIRMED, .worker = honest});
    assert_int_equal(c.workers[honest].is_suspect, 0);
    assert_int_equal(c.workers[honest].n_violations, 0);
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
    inventory.own = (strait_snapshot_set){
        .stage = 0, .n = 2, .steps = {1, 2}, .generations = {1, 1}};
    inventory.next = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {1}, .generations = {1}};
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
        cmocka_unit_test(replaces_a_worker_that_two_others_report),
        cmocka_unit_test(keeps_disputes_of_a_worker_that_reconnects),
        cmocka_unit_test(replaces_a_worker_that_reports_two_others),
        cmocka_unit_test(bans_nobody_for_one_workers_word),
        cmocka_unit_test(separates_workers_that_contradict_each_other),
        cmocka_unit_test(ignores_reports_about_an_abandoned_generation),
        cmocka_unit_test(counts_reports_about_other_than_neighbours),
        cmocka_unit_test(counts_invalid_data_found_by_the_driver),
        cmocka_unit_test(recomputes_nonfinite_steps_on_a_spare),
        cmocka_unit_test(verifies_repeated_reports_by_exchanging_stages),
        cmocka_unit_test(exchanges_no_stages_that_do_not_fit),
        cmocka_unit_test(bans_for_the_second_false_report_of_nonfinite_values),
        cmocka_unit_test(suspects_the_neighbour_of_two_false_reporters),
        cmocka_unit_test(clears_a_suspect_whose_report_was_true),
        cmocka_unit_test(never_restores_a_suspect_from_itself),
        cmocka_unit_test(keeps_the_owner_of_an_unusable_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
