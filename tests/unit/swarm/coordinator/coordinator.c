/* The coordinator, event by event: assigning, committing, restoring, handing over. */
#include "coordinator_rig.h"
#include "swarm/coordinator/state.h"

static void waits_until_every_stage_has_a_worker(void **state) {
    (void)state;
    begin(1);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    assert_string_equal(find(STRAIT_SWARM_LOG, -1)->reason,
                        "not enough workers for all stages: waiting for more to join");
    join(1, strait_snapshot_inventory_empty());
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
    assert_int_equal(c.generation, 1);
    assert_non_null(find(STRAIT_SWARM_PERSIST, -1)); // before the commands
    assert_true(find(STRAIT_SWARM_PERSIST, -1) < find(STRAIT_SWARM_COMMAND, -1));
    get_ready();
    assert_int_equal(find(STRAIT_SWARM_RESTORED, -1)->step, 0);
}

static void commits_a_step_when_all_stages_applied_it(void **state) {
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

/* All owners have a snapshot of a step, but one never replied that it had applied it. */
static void never_restores_an_uncommitted_step(void **state) {
    (void)state;
    begin(2);
    run_step(0, 1);
    goal(1, 0);
    get_ready();
    goal(1, 1);
    for (int i = 0; i < 2; i++) {
        strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
        inventory.own = (strait_snapshot_set){
            .stage = i, .n = 2, .steps = {1, 2}, .generations = {1, 1}};
        heartbeat(c.owner[i], inventory, 0, 0);
    }
    reply(c.owner[0], STRAIT_OK);
    reply(c.owner[1], STRAIT_ECLOSED);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    get_ready();
    assert_int_equal(c.step, 1);
}

static void restores_a_spare_from_a_neighbours_copy(void **state) {
    (void)state;
    begin(3);
    run_step(0, 1);
    const int lost = c.owner[0];
    const int other = c.owner[1];
    strait_snapshot_inventory inventory = c.workers[other].inventory;
    inventory.prev = (strait_snapshot_set){.stage = 0, .n = 1, .steps = {1}, .generations = {1}};
    heartbeat(other, inventory, 0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = lost});
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

/* All workers send heartbeats without progress, and one reports that it waits. Returns the worker
 * that is disconnected. */
static int find_disconnected(int waiting) {
    for (int i = 0; i < 40 && c.phase == STRAIT_PHASE_WORK; i++) {
        now += S;
        for (int n = 0; n < 3; n++)
            heartbeat(n, strait_snapshot_inventory_empty(), 7, n == waiting);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    const strait_swarm_action *away = find(STRAIT_SWARM_DISCONNECT, -1);
    assert_non_null(away);
    assert_string_equal(away->reason, "sends heartbeats but makes no progress; disconnected");
    return away->worker;
}

static void disconnects_the_stalled_worker_not_the_waiting_one(void **state) {
    (void)state;
    begin(3);
    goal(0, 0);
    const int stalled = c.owner[1];
    const int waiting = c.owner[0];
    assert_int_equal(find_disconnected(waiting), stalled);
    assert_int_not_equal(c.owner[1], stalled);
    assert_int_equal(c.owner[0], waiting);
}

static void ignores_a_claim_to_wait_without_an_awaited_neighbour(void **state) {
    (void)state;
    begin(3);
    c.goal_ns[0] = 5 * S; // the limit of the phase is later than that of progress
    goal(0, 0);
    const int idle = c.owner[0];
    reply(c.owner[1], STRAIT_OK);
    assert_int_equal(find_disconnected(idle), idle);
}

static void disconnects_a_silent_worker_after_its_lease(void **state) {
    (void)state;
    begin(2);
    const int silent = c.owner[0];
    for (int i = 0; i < 9; i++) {
        now += S;
        heartbeat(c.owner[1], strait_snapshot_inventory_empty(), 1, 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    }
    now += 2 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, silent);
    assert_string_equal(find(STRAIT_SWARM_DISCONNECT, -1)->reason,
                        "no heartbeat: lease expired; disconnected");
    join(silent, strait_snapshot_inventory_empty()); // it reconnects
    assert_non_null(find(STRAIT_SWARM_RELEASE, -1));
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
}

/* A blocked driver reads no heartbeats: leases are extended when it resumes. */
static void extends_leases_after_the_driver_was_blocked(void **state) {
    (void)state;
    begin(2);
    now += 100 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_RESUMED});
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    now += 11 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_non_null(find(STRAIT_SWARM_DISCONNECT, -1));
}

static void hands_over_before_a_worker_leaves(void **state) {
    (void)state;
    begin(3);
    run_step(0, 0);
    const int leaver = c.owner[0];
    const int other = c.owner[1];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    heartbeat(leaver, own_snapshot(0, 1), 0, 0);
    reply(leaver, STRAIT_OK);
    reply(other, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {1}, .generations = {1}};
    inventory.prev = (strait_snapshot_set){.stage = 0, .n = 1, .steps = {1}, .generations = {1}};
    heartbeat(other, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, leaver);
    assert_string_equal(find(STRAIT_SWARM_DISCONNECT, -1)->reason, "");
    get_ready();
    assert_int_equal(c.step, 1); // nothing was lost
}

/* Snapshots of steps that were rolled back are stale. */
static void drops_stale_snapshots(void **state) {
    (void)state;
    begin(3);
    for (int64_t step = 0; step < 5; step++)
        run_step(step, step % 2 == 1);
    const int lost = c.owner[1];
    const strait_fingerprint key = c.workers[lost].key;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST,
                              .worker = lost}); // without copies of its stage
    get_ready();
    assert_int_equal(c.step, 0);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {4}, .generations = {1}};
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_JOIN, .key = key, .report = &report, .inventory = inventory});
    assert_int_equal(c.workers[strait_coordinator_find(&c, &key)].inventory.own.n, 0);
}

/* Generations that restored nothing make no snapshot stale, however many there were. */
static void failed_generations_keep_snapshots_valid(void **state) {
    (void)state;
    begin(2);
    for (int64_t step = 0; step < 3; step++)
        run_step(step, 1);
    const int stayed = c.owner[0];
    const int lost = c.owner[1];
    const strait_fingerprint key = c.workers[lost].key;
    const strait_snapshot_inventory inventory[] = {c.workers[stayed].inventory,
                                                   c.workers[lost].inventory};
    for (int i = 0; i < 2 * STRAIT_SWARM_GENERATIONS; i++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = lost});
        now += 10 * S;
        heartbeat(stayed, inventory[0], (uint32_t)i + 1, 0);
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_JOIN, .key = key, .report = &report, .inventory = inventory[1]});
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        reply(stayed, STRAIT_OK);
    }
    assert_true(c.generation > 2 * STRAIT_SWARM_GENERATIONS);
    get_ready();
    assert_int_equal(c.step, 3);
}

static void does_not_choose_an_unfit_worker_again(void **state) {
    (void)state;
    begin(2);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[0]});
    join(7, strait_snapshot_inventory_empty());
    const int small = c.owner[0];
    reply(small, STRAIT_ENOMEM);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    assert_int_equal(c.workers[small].is_unfit, 1);
    now += 10 * S;
    for (int i = 0; i < 2; i++)
        heartbeat(i, strait_snapshot_inventory_empty(), 1, 0);
    heartbeat(small, strait_snapshot_inventory_empty(), 1, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING); // the only spare is unfit
    join(8, strait_snapshot_inventory_empty());
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
}

/* A faster spare takes over a stage between two steps without loss of work. */
static void keeps_the_previous_owner_as_a_spare(void **state) {
    (void)state;
    begin(3);
    run_step(0, 0);
    const int slow = c.owner[0];
    const int other = c.owner[1];
    const int successor = 3 - slow - other;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = other});
    assert_int_equal(c.workers[slow].has_successor, 0); // the successor owns a stage
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = successor});
    goal(1, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    heartbeat(slow, own_snapshot(0, 1), 0, 0);
    reply(slow, STRAIT_OK);
    reply(other, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {1}, .generations = {1}};
    inventory.prev = (strait_snapshot_set){.stage = 0, .n = 1, .steps = {1}, .generations = {1}};
    heartbeat(other, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, slow);
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    assert_int_equal(c.owner[0], successor);
    assert_int_equal(strait_coordinator_count_spares(&c), 1);
    get_ready();
    assert_int_equal(c.step, 1);
}

/* The neighbour with the copy for the successor is lost before that has it. */
static void takes_a_stage_back_when_the_copy_is_lost(void **state) {
    (void)state;
    begin_with_stages(3, 5);
    run_step(0, 0);
    const int slow = c.owner[0], holder = c.owner[1];
    const int successor = strait_coordinator_spare_for(&c, 0);
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = successor});
    goal(1, 0);
    for (int i = 0; i < 3; i++) { // each holds a copy of the stage before
        strait_snapshot_inventory inventory = own_snapshot(i, 1);
        inventory.live = (strait_live_state){i, 1, c.generation, 0, 0};
        if (i > 0) inventory.prev = own_snapshot(i - 1, 1).own;
        heartbeat(c.owner[i], inventory, 0, 0);
    }
    for (int i = 2; i >= 0; i--)
        reply(c.owner[i], STRAIT_OK);
    assert_int_equal(c.owner[0], successor);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = holder});
    get_ready();
    assert_int_equal(c.owner[0], slow);
    assert_int_equal(c.step, 1);
    assert_int_equal(c.replay.n_stage_steps, 0);
}

/* The successor has left, or the copy does not arrive: the stage stays where it is. */
static void keeps_the_owner_when_a_move_is_not_possible(void **state) {
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        begin(3);
        run_step(0, 0);
        const int slow = c.owner[0];
        const int other = c.owner[1];
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = 3 - slow - other});
        goal(1, 0);
        if (!is_late)
            feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = 3 - slow - other});
        reply(slow, STRAIT_OK);
        reply(other, STRAIT_OK);
        for (int i = 0; i < 70 && c.phase != STRAIT_PHASE_ASSIGN; i++) {
            now += S;
            strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
            inventory.own = (strait_snapshot_set){
                .stage = 0, .n = 1, .steps = {1}, .generations = {1}};
            heartbeat(slow, inventory, (uint32_t)i, 0);
            inventory.own.stage = 1;
            if (!is_late)
                inventory.prev = (strait_snapshot_set){
                    .stage = 0, .n = 1, .steps = {1}, .generations = {1}};
            heartbeat(other, inventory, (uint32_t)i, 0);
            if (is_late)
                heartbeat(3 - slow - other, strait_snapshot_inventory_empty(), (uint32_t)i, 0);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        get_ready();
        assert_int_equal(c.owner[0], slow);
        assert_int_equal(c.owner[1], other);
        assert_int_equal(c.step, 1);
        assert_int_equal(c.generation, 2);
    }
}

/* A neighbour leaves during a handover: the successor would have no copy to restore from. */
static void handles_leaving_before_moving(void **state) {
    (void)state;
    begin(3);
    run_step(0, 0);
    const int leaver = c.owner[0];
    const int slow = c.owner[1];
    const int successor = 3 - slow - leaver;
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REASSIGN, .worker = slow, .successor = successor});
    goal(1, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = leaver});
    reply(leaver, STRAIT_OK);
    reply(slow, STRAIT_OK);
    strait_snapshot_inventory inventory = strait_snapshot_inventory_empty();
    inventory.own = (strait_snapshot_set){.stage = 0, .n = 1, .steps = {1}, .generations = {1}};
    inventory.next = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {1}, .generations = {1}};
    heartbeat(leaver, inventory, 0, 0);
    inventory.own = (strait_snapshot_set){.stage = 1, .n = 1, .steps = {1}, .generations = {1}};
    inventory.prev = (strait_snapshot_set){.stage = 0, .n = 1, .steps = {1}, .generations = {1}};
    heartbeat(slow, inventory, 0, 0);
    assert_int_equal(find(STRAIT_SWARM_DISCONNECT, -1)->worker, leaver);
    get_ready();
    assert_int_equal(c.owner[0], successor);
    assert_int_equal(c.owner[1], slow);
    assert_int_equal(c.step, 1);
}

/* The layers were split for certain workers: they get the stages, unless one has left. */
static void gives_stages_to_the_preferred_workers(void **state) {
    (void)state;
    const int owners[] = {2, 0};
    for (int has_left = 0; has_left < 2; has_left++) {
        begin_with_stages(2, 0);
        c.has_started = 0;
        for (int i = 0; i < 4; i++)
            join(i, strait_snapshot_inventory_empty());
        if (has_left) feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = 2});
        feed((strait_swarm_event){.kind = STRAIT_SWARM_START, .owners = owners});
        get_ready();
        assert_int_equal(c.owner[0], has_left ? 1 : 2);
        assert_int_equal(c.owner[1], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_until_every_stage_has_a_worker),
        cmocka_unit_test(commits_a_step_when_all_stages_applied_it),
        cmocka_unit_test(never_restores_an_uncommitted_step),
        cmocka_unit_test(restores_a_spare_from_a_neighbours_copy),
        cmocka_unit_test(disconnects_the_stalled_worker_not_the_waiting_one),
        cmocka_unit_test(ignores_a_claim_to_wait_without_an_awaited_neighbour),
        cmocka_unit_test(disconnects_a_silent_worker_after_its_lease),
        cmocka_unit_test(extends_leases_after_the_driver_was_blocked),
        cmocka_unit_test(hands_over_before_a_worker_leaves),
        cmocka_unit_test(drops_stale_snapshots),
        cmocka_unit_test(failed_generations_keep_snapshots_valid),
        cmocka_unit_test(does_not_choose_an_unfit_worker_again),
        cmocka_unit_test(keeps_the_previous_owner_as_a_spare),
        cmocka_unit_test(takes_a_stage_back_when_the_copy_is_lost),
        cmocka_unit_test(keeps_the_owner_when_a_move_is_not_possible),
        cmocka_unit_test(handles_leaving_before_moving),
        cmocka_unit_test(gives_stages_to_the_preferred_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
