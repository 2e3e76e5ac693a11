/* The coordinator's machine: who sends what is no number, and who says so. */
#include "coordinator_rig.h"

/* The owner of `stage` says that what came from the owner of `blamed` is no number. */
static void accuse(int stage, int blamed) {
    goal(0, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_REPLY,
                              .worker = c.owner[stage],
                              .generation = c.generation,
                              .sequence = c.sequence,
                              .is_blaming = 1,
                              .blamed = blamed});
}

static void what_is_no_number_is_forgiven_once(void **state) {
    (void)state;
    begin(2);
    const int culprit = c.owner[0];
    const strait_fingerprint key = c.workers[culprit].key;
    accuse(1, 0);
    assert_null(find(STRAIT_SWARM_BAN, -1));
    assert_int_not_equal(c.phase, STRAIT_PHASE_WORK); // the step is made again
    bring_back();
    assert_int_equal(c.owner[0], culprit);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = culprit});
    join(0, strait_snapshot_inventory_empty()); // a new link is no new start
    bring_back();
    const int again = strait_coordinator_find(&c, &key);
    const int stage = c.workers[again].stage;
    assert_true(stage >= 0);
    accuse(1 - stage, stage);
    assert_int_equal(find(STRAIT_SWARM_BAN, -1)->worker, again);
    assert_int_equal(strait_coordinator_find(&c, &key), -1);
    join(9, strait_snapshot_inventory_empty());
    bring_back();
}

static void who_blames_one_after_another_is_to_blame(void **state) {
    (void)state;
    begin(4);
    const int liar = c.owner[1];
    for (int i = 0; i < 2; i++) { // two accusations, and the first neighbour is gone
        const int neighbour = c.owner[0];
        accuse(1, 0);
        assert_int_equal(find(STRAIT_SWARM_BAN, neighbour) != NULL, i == 1);
        bring_back();
    }
    for (int i = 0; i < 2; i++) { // the next two strike whoever makes them
        const int neighbour = c.owner[0];
        accuse(1, 0);
        assert_null(find(STRAIT_SWARM_BAN, neighbour));
        assert_int_equal(find(STRAIT_SWARM_BAN, liar) != NULL, i == 1);
        if (i == 0) bring_back();
    }
    assert_int_not_equal(c.owner[1], liar);
}

/* Nobody can blame a stage that is not beside its own, or none at all. */
static void blame_reaches_neighbours_only(void **state) {
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

static void the_coordinator_sees_for_itself(void **state) {
    (void)state;
    begin(3);
    const int culprit = c.owner[1];
    for (int i = 0; i < STRAIT_SWARM_VIOLATIONS; i++) {
        tell((strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = culprit});
        bring_back();
    }
    assert_int_not_equal(c.owner[1], culprit);
    assert_int_equal(c.workers[culprit].is_known, 0);
}

static void a_doubt_moves_the_stage_if_it_can(void **state) {
    (void)state;
    begin(2);
    const int suspects = c.owner[1];
    tell((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspects});
    assert_null(find(STRAIT_SWARM_RELEASE, -1)); // there is nobody else
    bring_back();
    assert_int_equal(c.owner[1], suspects);
    assert_int_equal(c.generation, 2);
    join(2, strait_snapshot_inventory_empty());
    tell((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspects});
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, suspects);
    bring_back();
    assert_int_not_equal(c.owner[1], suspects);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    bring_back(); // it is still good enough when nobody else is there
    assert_int_equal(c.owner[0], suspects);
}

/* What made its numbers none may lie in its own images: it gets its neighbour's copy, or what the
 * coordinator has, if need be of an older step. */
static void who_is_doubted_is_restored_by_others(void **state) {
    (void)state;
    begin(2);
    make_step(0, 1);
    make_step(1, 1);
    const int suspects = c.owner[1];
    strait_snapshot_inventory inventory = c.workers[c.owner[0]].inventory;
    inventory.own = (strait_snapshot_set){0, 2, {1, 2}, {1, 1}};
    inventory.next = (strait_snapshot_set){1, 1, {1}, {1}};
    pulse(c.owner[0], inventory, 0, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_NONFINITE, .worker = suspects});
    get_ready();
    assert_int_equal(c.owner[1], suspects); // there is nobody else
    assert_int_equal(c.step, 1);            // not 2, which it has itself
    inventory.next = strait_snapshot_inventory_empty().next;
    pulse(c.owner[0], inventory, 0, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(0, inventory);
    get_ready();
    assert_int_equal(c.step, 0); // from the seed
}

/* It has said so, and need not be blamed: whatever else there is will do. */
static void an_image_of_no_use_costs_no_place(void **state) {
    (void)state;
    begin(2);
    make_step(0, 1);
    const int owner = c.owner[1];
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(0, strait_snapshot_inventory_empty());
    while (c.phase != STRAIT_PHASE_RESTORE)
        for (int i = 0; i < 2; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    pulse(owner, strait_snapshot_inventory_empty(), 0, 0);
    reply(owner, STRAIT_ENONFINITE);
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN); // at once
    get_ready();
    assert_int_equal(c.owner[1], owner);
    assert_int_equal(c.workers[owner].n_violations, 0);
    assert_int_equal(c.step, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_number_is_forgiven_once),
        cmocka_unit_test(who_blames_one_after_another_is_to_blame),
        cmocka_unit_test(blame_reaches_neighbours_only),
        cmocka_unit_test(the_coordinator_sees_for_itself),
        cmocka_unit_test(a_doubt_moves_the_stage_if_it_can),
        cmocka_unit_test(who_is_doubted_is_restored_by_others),
        cmocka_unit_test(an_image_of_no_use_costs_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
