/* The coordinator's machine, event by event: what it does in the cases that matter. */
#include "coordinator_rig.h"

static void nothing_begins_before_there_are_enough(void **state) {
    (void)state;
    begin(1);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    assert_string_equal(find(STRAIT_SWARM_LOG, -1)->reason,
                        "not enough workers for all stages: waiting for more to join");
    join(1, strait_snapshot_inventory_empty());
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
    assert_int_equal(c.generation, 1);
    assert_non_null(find(STRAIT_SWARM_PERSIST, -1)); // before the orders
    assert_true(find(STRAIT_SWARM_PERSIST, -1) < find(STRAIT_SWARM_COMMAND, -1));
    get_ready();
    assert_int_equal(find(STRAIT_SWARM_RESTORED, -1)->step, 0);
}

static void a_step_counts_when_all_have_applied_it(void **state) {
    (void)state;
    begin(2);
    goal(0, 0);
    get_ready();
    goal(0, 1);
    reply(c.owner[0], STRAIT_OK);
    assert_int_equal(c.committed, 0);
    assert_null(find(STRAIT_SWARM_DONE, -1));
    reply(c.owner[1], STRAIT_OK);
    assert_int_equal(c.committed, 1);
    assert_true(find(STRAIT_SWARM_PERSIST, -1) < find(STRAIT_SWARM_DONE, -1));
}

/* All have an image of a step that one of them never said it had made: it did not happen. */
static void what_was_not_committed_is_not_restored(void **state) {
    (void)state;
    begin(2);
    make_step(0, 1);
    goal(1, 0);
    get_ready();
    goal(1, 1);
    for (int i = 0; i < 2; i++) {
        strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
        inventory.own = (strait_snapshot_set){i, 2, {1, 2}, {1, 1}};
        pulse(c.owner[i], inventory, 0, 0);
    }
    reply(c.owner[0], STRAIT_OK);
    reply(c.owner[1], STRAIT_ECLOSED);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    now += S;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    get_ready();
    assert_int_equal(c.step, 1);
}

static void a_spare_takes_over_from_a_copy(void **state) {
    (void)state;
    begin(3);
    make_step(0, 1);
    const int lost = c.owner[0];
    const int other = c.owner[1];
    strait_snapshot_inventory inventory = c.workers[other].inventory;
    inventory.prev = (strait_snapshot_set){0, 1, {1}, {1}};
    pulse(other, inventory, 0, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = lost});
    assert_int_equal(c.generation, 2);
    assert_int_not_equal(c.owner[0], lost);
    while (c.phase != STRAIT_PHASE_RESTORE)
        for (int i = 0; i < 2; i++)
            if (c.is_awaited[i]) reply(c.owner[i], STRAIT_OK);
    const strait_swarm_action *command = find(STRAIT_SWARM_COMMAND, c.owner[0]);
    assert_int_equal(command->step, 1);
    assert_int_equal(command->source, STRAIT_SWARM_FROM_NEXT);
    assert_int_equal(find(STRAIT_SWARM_COMMAND, other)->gives_prev, 1);
    assert_int_equal(find(STRAIT_SWARM_COMMAND, other)->source, STRAIT_SWARM_FROM_SELF);
}

/* All live and none makes progress, but one says it waits: who is sent away? */
static int sent_away(int waiting) {
    for (int i = 0; i < 40 && c.phase == STRAIT_PHASE_WORK; i++) {
        now += S;
        for (int n = 0; n < 3; n++)
            pulse(n, strait_snapshot_inventory_empty(), 7, n == waiting);
        tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    const strait_swarm_action *away = find(STRAIT_SWARM_DISCONNECT, -1);
    assert_non_null(away);
    assert_string_equal(away->reason, "sends heartbeats but makes no progress; disconnected");
    return away->worker;
}

static void the_stalled_is_named_and_the_waiting_is_not(void **state) {
    (void)state;
    begin(3);
    goal(0, 0);
    const int stalled = c.owner[1];
    const int waiting = c.owner[0];
    assert_int_equal(sent_away(waiting), stalled);
    assert_int_not_equal(c.owner[1], stalled);
    assert_int_equal(c.owner[0], waiting);
}

static void waiting_for_nobody_is_stalling(void **state) {
    (void)state;
    begin(3);
    goal(0, 0);
    const int idle = c.owner[0];
    reply(c.owner[1], STRAIT_OK);
    assert_int_equal(sent_away(idle), idle);
}

static void silence_ends_a_lease(void **state) {
    (void)state;
    begin(2);
    const int silent = c.owner[0];
    for (int i = 0; i < 9; i++) {
        now += S;
        pulse(c.owner[1], strait_snapshot_inventory_empty(), 1, 0);
        tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    }
    now += 2 * S;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, silent);
    assert_string_equal(find(STRAIT_SWARM_DISCONNECT, -1)->reason,
                        "no heartbeat: lease expired; disconnected");
    join(silent, strait_snapshot_inventory_empty()); // it wakes
    assert_non_null(find(STRAIT_SWARM_RELEASE, -1));
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
}

/* A coordinator that paused has heard nobody, which is not their fault. */
static void silence_of_a_pause_is_forgiven(void **state) {
    (void)state;
    begin(2);
    now += 100 * S;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_RESUMED});
    tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    now += 11 * S;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_non_null(find(STRAIT_SWARM_DISCONNECT, -1));
}

static void who_leaves_hands_over_first(void **state) {
    (void)state;
    begin(3);
    make_step(0, 0);
    const int leaver = c.owner[0];
    const int other = c.owner[1];
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    reply(leaver, STRAIT_OK);
    reply(other, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){1, 1, {1}, {1}};
    inventory.prev = (strait_snapshot_set){0, 1, {1}, {1}};
    pulse(other, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, leaver);
    assert_string_equal(find(STRAIT_SWARM_DISCONNECT, -1)->reason, "");
    get_ready();
    assert_int_equal(c.step, 1); // nothing was lost
}

/* Images of steps that were rolled back since are of another past. */
static void old_images_are_not_trusted(void **state) {
    (void)state;
    begin(3);
    for (int64_t step = 0; step < 5; step++)
        make_step(step, step % 2 == 1);
    const int lost = c.owner[1];
    const strait_fingerprint key = c.workers[lost].key;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = lost}); // and no copies of it
    get_ready();
    assert_int_equal(c.step, 0);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){1, 1, {4}, {1}};
    tell((strait_swarm_event){
        .kind = STRAIT_SWARM_JOIN, .key = key, .report = &report, .inventory = inventory});
    assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].inventory.own.n, 0);
}

/* Epochs that came to nothing made no other past, however many there were. */
static void epochs_that_fail_cost_no_images(void **state) {
    (void)state;
    begin(2);
    for (int64_t step = 0; step < 3; step++)
        make_step(step, 1);
    const int stayed = c.owner[0];
    const int lost = c.owner[1];
    const strait_fingerprint key = c.workers[lost].key;
    const strait_snapshot_inventory inventory[] = {c.workers[stayed].inventory,
                                                   c.workers[lost].inventory};
    for (int i = 0; i < 2 * STRAIT_SWARM_GENERATIONS; i++) {
        tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = lost});
        now += 10 * S;
        pulse(stayed, inventory[0], (uint32_t)i + 1, 0);
        tell((strait_swarm_event){
            .kind = STRAIT_SWARM_JOIN, .key = key, .report = &report, .inventory = inventory[1]});
        tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_true(c.generation > 2 * STRAIT_SWARM_GENERATIONS);
    get_ready();
    assert_int_equal(c.step, 3);
}

static void a_restarted_coordinator_waits_for_the_owners(void **state) {
    (void)state;
    begin(2);
    make_step(0, 1);
    make_step(1, 1);
    strait_swarm_durable durable;
    strait_coordinator_durable(&c, &durable);
    strait_snapshot_inventory inventory[2];
    for (int i = 0; i < 2; i++) {
        inventory[i] = strait_snapshot_inventory_empty();
        inventory[i].own = (strait_snapshot_set){i, 2, {1, 2}, {1, 1}};
    }
    const strait_swarm_config config = c.config;
    strait_coordinator_init(&c, &config);
    strait_coordinator_resume(&c, &durable, now);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_START});
    join(5, strait_snapshot_inventory_empty()); // a spare is faster
    join(0, inventory[0]);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    now += S;
    join(1, inventory[1]);
    get_ready();
    assert_int_equal(c.generation, 2);
    assert_int_equal(c.committed, 2);
    assert_int_equal(c.step, 1); // what came after step 2, a validation perhaps, is not known
}

static void who_cannot_serve_is_not_asked_again(void **state) {
    (void)state;
    begin(2);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(7, strait_snapshot_inventory_empty());
    const int small = c.owner[0];
    reply(small, STRAIT_ENOMEM);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    assert_int_equal(c.workers[small].is_unfit, 1);
    now += 10 * S;
    for (int i = 0; i < 2; i++)
        pulse(i, strait_snapshot_inventory_empty(), 1, 0);
    pulse(small, strait_snapshot_inventory_empty(), 1, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING); // it is the only spare, and of no use
    join(8, strait_snapshot_inventory_empty());
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
}

/* A spare that is faster gets a stage between two steps, and nothing is lost. */
static void who_yields_hands_over_and_stays(void **state) {
    (void)state;
    begin(3);
    make_step(0, 0);
    const int slow = c.owner[0];
    const int other = c.owner[1];
    const int successor = 3 - slow - other;
    tell((strait_swarm_event){.kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = other});
    assert_int_equal(c.workers[slow].has_successor, 0); // which has a stage of its own
    tell((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = successor});
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    reply(slow, STRAIT_OK);
    reply(other, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){1, 1, {1}, {1}};
    inventory.prev = (strait_snapshot_set){0, 1, {1}, {1}};
    pulse(other, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, slow);
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    assert_int_equal(c.owner[0], successor);
    assert_int_equal(strait_coordinator_count_spares(&c), 1);
    get_ready();
    assert_int_equal(c.step, 1);
}

/* The heir has gone by then, or the copy does not come: everything stays as it was. */
static void who_has_nobody_to_yield_to_goes_on(void **state) {
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        begin(3);
        make_step(0, 0);
        const int slow = c.owner[0];
        const int other = c.owner[1];
        tell((strait_swarm_event){
            .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = 3 - slow - other});
        goal(1, 0);
        if (!is_late)
            tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = 3 - slow - other});
        reply(slow, STRAIT_OK);
        reply(other, STRAIT_OK);
        for (int i = 0; i < 70; i++) {
            now += S;
            strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
            inventory.own = (strait_snapshot_set){0, 1, {1}, {1}};
            pulse(slow, inventory, (uint32_t)i, 0);
            inventory.own.stage = 1;
            if (!is_late) inventory.prev = (strait_snapshot_set){0, 1, {1}, {1}};
            pulse(other, inventory, (uint32_t)i, 0);
            if (is_late) pulse(3 - slow - other, strait_snapshot_inventory_empty(), (uint32_t)i, 0);
            tell((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        get_ready();
        assert_int_equal(c.owner[0], slow);
        assert_int_equal(c.owner[1], other);
        assert_int_equal(c.step, 1);
        assert_int_equal(c.generation, 2);
    }
}

/* A neighbour leaves while a stage is handed over: the heir has nobody to restore from, and waits.
 */
static void who_leaves_goes_before_who_yields(void **state) {
    (void)state;
    begin(3);
    make_step(0, 0);
    const int leaver = c.owner[0];
    const int slow = c.owner[1];
    const int successor = 3 - slow - leaver;
    tell((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = successor});
    goal(1, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    reply(leaver, STRAIT_OK);
    reply(slow, STRAIT_OK);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){0, 1, {1}, {1}};
    inventory.next = (strait_snapshot_set){1, 1, {1}, {1}};
    pulse(leaver, inventory, 0, 0);
    inventory.own = (strait_snapshot_set){1, 1, {1}, {1}};
    inventory.prev = (strait_snapshot_set){0, 1, {1}, {1}};
    pulse(slow, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, leaver);
    get_ready();
    assert_int_equal(c.owner[0], successor);
    assert_int_equal(c.owner[1], slow);
    assert_int_equal(c.step, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_begins_before_there_are_enough),
        cmocka_unit_test(a_step_counts_when_all_have_applied_it),
        cmocka_unit_test(what_was_not_committed_is_not_restored),
        cmocka_unit_test(a_spare_takes_over_from_a_copy),
        cmocka_unit_test(the_stalled_is_named_and_the_waiting_is_not),
        cmocka_unit_test(waiting_for_nobody_is_stalling),
        cmocka_unit_test(silence_ends_a_lease),
        cmocka_unit_test(silence_of_a_pause_is_forgiven),
        cmocka_unit_test(who_leaves_hands_over_first),
        cmocka_unit_test(old_images_are_not_trusted),
        cmocka_unit_test(epochs_that_fail_cost_no_images),
        cmocka_unit_test(a_restarted_coordinator_waits_for_the_owners),
        cmocka_unit_test(who_cannot_serve_is_not_asked_again),
        cmocka_unit_test(who_yields_hands_over_and_stays),
        cmocka_unit_test(who_has_nobody_to_yield_to_goes_on),
        cmocka_unit_test(who_leaves_goes_before_who_yields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
