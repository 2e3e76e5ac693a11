/* Several stages that change owners before one step: no step is lost with the copies that the
 * owners have of each other's stages. */
#include "coordinator_rig.h"
#include "swarm/coordinator/state.h"

/* What the owner of a stage has when its own copies and those of its neighbours have arrived. Every
 * stage has its copy at the next one, the last one at the one before. */
static strait_snapshot_inventory after_copies(int stage, int64_t step) {
    const int last = c.config.n_stages - 1;
    strait_snapshot_inventory inventory = own_snapshot(stage, step);
    inventory.live = (strait_live_state){stage, step, c.generation, 0, 0};
    if (stage > 0) inventory.prev = own_snapshot(stage - 1, step).own;
    if (stage == last - 1) inventory.next = own_snapshot(last, step).own;
    return inventory;
}

/* The step begins: stages take snapshots, and all copies arrive. */
static void hand_over(int64_t step) {
    int owners[STRAIT_RUN_STAGES];
    goal(step, 0);
    assert_int_equal(c.phase, STRAIT_PHASE_SNAPSHOT);
    memcpy(owners, c.owner, sizeof owners);
    for (int i = 0; i < c.config.n_stages; i++)
        heartbeat(owners[i], after_copies(i, step), 0, 0);
    for (int i = 0; i < c.config.n_stages; i++)
        reply(owners[i], STRAIT_OK);
}

static void ask_to_leave(int slot) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = slot});
}

static void expect_no_step_lost(int64_t step) {
    get_ready();
    assert_int_equal(c.step, step);
    assert_int_equal(c.replay.n_stage_steps, 0);
}

/* Whichever two of the stages they have. */
static void neighbours_leave_one_after_the_other(void **state) {
    (void)state;
    for (int n_stages = 2; n_stages <= 4; n_stages++)
        for (int first = 0; first + 1 < n_stages; first++) {
            begin_with_stages(n_stages, n_stages + 2);
            run_step(0, 0);
            const int leavers[] = {c.owner[first], c.owner[first + 1]};
            for (int i = 0; i < 2; i++)
                ask_to_leave(leavers[i]);
            hand_over(1);
            assert_int_equal(
                c.workers[leavers[0]].is_connected + c.workers[leavers[1]].is_connected, 1);
            expect_no_step_lost(1);
            hand_over(1);
            for (int i = 0; i < 2; i++)
                assert_false(c.workers[leavers[i]].is_connected);
            expect_no_step_lost(1);
        }
}

/* There is a spare for one of the two stages: the second leaver is there for its copy until that
 * is restored, and does not wait for another spare. */
static void a_leaver_gives_its_copy_first_without_a_spare(void **state) {
    (void)state;
    begin_with_stages(3, 4);
    run_step(0, 0);
    const int first = c.owner[0], second = c.owner[1];
    ask_to_leave(first);
    ask_to_leave(second);
    hand_over(1);
    assert_true(!c.workers[first].is_connected && c.workers[second].is_connected);
    expect_no_step_lost(1);
    hand_over(1);
    assert_false(c.workers[second].is_connected);
    assert_int_equal(c.phase, STRAIT_PHASE_WAITING);
    join(6, strait_snapshot_inventory_empty());
    expect_no_step_lost(1);
}

/* Leavers with stages that are not beside each other do not wait for each other. */
static void distant_stages_are_handed_over_together(void **state) {
    (void)state;
    begin_with_stages(4, 6);
    run_step(0, 0);
    const int leavers[] = {c.owner[0], c.owner[2]};
    for (int i = 0; i < 2; i++)
        ask_to_leave(leavers[i]);
    hand_over(1);
    for (int i = 0; i < 2; i++)
        assert_false(c.workers[leavers[i]].is_connected);
    expect_no_step_lost(1);
}

/* Two stages beside each other are to move to faster spares: the first does, and keeps its spare,
 * although the owner of the second had the copy. */
static void moves_one_of_two_neighbours_at_a_time(void **state) {
    (void)state;
    begin_with_stages(3, 5);
    run_step(0, 0);
    const int owners[] = {c.owner[0], c.owner[1]};
    int spares[2], n = 0;
    for (int slot = 0; slot < 5 && n < 2; slot++)
        if (c.workers[slot].stage < 0) spares[n++] = slot;
    for (int i = 0; i < 2; i++)
        feed((strait_swarm_event){
            .kind = STRAIT_SWARM_REASSIGN, .worker = owners[i], .successor = spares[i]});
    hand_over(1);
    expect_no_step_lost(1);
    assert_int_equal(c.owner[0], spares[0]);
    assert_int_equal(c.owner[1], owners[1]);
}

/* ---- who stays, and why ---- */

/* Both the operator and the worker are told, once. */
static void expect_told(int slot, const char *text) {
    const strait_swarm_action *told = find(STRAIT_SWARM_STAY, slot);
    int n_logged = 0;
    assert_non_null(told);
    assert_non_null(strstr(told->reason, text));
    for (int i = 0; i < actions.n; i++)
        n_logged += actions.items[i].kind == STRAIT_SWARM_LOG && actions.items[i].worker == slot &&
                    actions.items[i].reason == told->reason;
    assert_int_equal(n_logged, 1);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_null(find(STRAIT_SWARM_STAY, -1));
}

static void says_that_a_copy_is_still_to_come(void **state) {
    (void)state;
    begin(3);
    run_step(0, 0);
    const int leaver = c.owner[0];
    ask_to_leave(leaver);
    assert_null(find(STRAIT_SWARM_STAY, -1)); // the step goes on
    goal(1, 0);
    reply(c.owner[1], STRAIT_OK);
    assert_null(find(STRAIT_SWARM_STAY, -1));
    heartbeat(leaver, own_snapshot(0, 1), 0, 0);
    reply(leaver, STRAIT_OK);
    assert_int_equal(c.phase, STRAIT_PHASE_HANDOVER);
    expect_told(leaver, "a copy of its stage");
}

static void says_that_a_neighbour_leaves_first(void **state) {
    (void)state;
    begin(4);
    run_step(0, 0);
    const int second = c.owner[1];
    ask_to_leave(c.owner[0]);
    ask_to_leave(second);
    goal(1, 0);
    const int owners[] = {c.owner[0], c.owner[1]};
    for (int i = 0; i < 2; i++)
        heartbeat(owners[i], after_copies(i, 1), 0, 0);
    for (int i = 0; i < 2; i++)
        reply(owners[i], STRAIT_OK);
    expect_told(second, "a neighbour leaves first");
}

static void says_that_there_are_not_enough_workers(void **state) {
    (void)state;
    begin(2);
    run_step(0, 0);
    const int leaver = c.owner[0], other = c.owner[1];
    ask_to_leave(leaver);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = other});
    expect_told(leaver, "enough workers");
    join(5, strait_snapshot_inventory_empty()); // with it the leaver can hand its stage over
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
    expect_told(leaver, "until all stages are ready");
}

/* It asks again after it was away: it is told again. */
static void says_it_again_after_a_return(void **state) {
    (void)state;
    begin(2);
    run_step(0, 0);
    const int leaver = c.owner[0];
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = c.owner[1]});
    for (int i = 0; i < 2; i++) {
        ask_to_leave(leaver);
        expect_told(leaver, "enough workers");
        feed((strait_swarm_event){.kind = STRAIT_SWARM_JOIN,
                                  .key = c.workers[leaver].key,
                                  .report = &report,
                                  .inventory = strait_snapshot_inventory_empty()});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_leave_one_after_the_other),
        cmocka_unit_test(a_leaver_gives_its_copy_first_without_a_spare),
        cmocka_unit_test(distant_stages_are_handed_over_together),
        cmocka_unit_test(moves_one_of_two_neighbours_at_a_time),
        cmocka_unit_test(says_that_a_copy_is_still_to_come),
        cmocka_unit_test(says_that_a_neighbour_leaves_first),
        cmocka_unit_test(says_that_there_are_not_enough_workers),
        cmocka_unit_test(says_it_again_after_a_return)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
