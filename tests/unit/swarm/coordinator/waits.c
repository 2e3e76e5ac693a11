/* Workers that wait for further replicas, and replicas that reply late or not at all. */
#include "replicated_rig.h"

/* Its sums are missing, and it waits for no neighbour: the one that is silent has to go. */
static void who_waits_for_another_replica_is_not_disconnected(void **state) {
    (void)state;
    begin_replicated();
    const int owner = c.owner[1];
    goal(applied, 0);
    for (int slot = 0; slot < 4; slot++)
        if (slot != owner && slot != 3) reply(slot, STRAIT_OK);
    for (int i = 0; i < 200 && c.workers[3].is_connected; i++) {
        now += S;
        for (int slot = 0; slot < 4; slot++)
            heartbeat(slot, c.workers[slot].inventory, 1,
                      slot == owner ? STRAIT_SWARM_SAME_STAGE : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_false(c.workers[3].is_connected);
    assert_true(c.workers[owner].is_connected && c.owner[1] == owner);
    expect_no_step_back();
}

/* The owner of stage 1 has all sums and has replied. The other replica of the stage is stopped
 * before it has sent its last gradients to the stage before, whose workers wait for it. */
static void who_waits_for_a_replica_of_a_neighbour_is_not_disconnected(void **state) {
    (void)state;
    begin_replicated();
    const int stopped = 3;
    goal(applied, 0);
    reply(c.owner[1], STRAIT_OK);
    for (int i = 0; i < 200 && c.workers[stopped].is_connected; i++) {
        now += S;
        for (int slot = 0; slot < 4; slot++)
            heartbeat(slot, c.workers[slot].inventory, 1,
                      strait_coordinator_stage_of(&c, slot) == 0 ? 1 : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    for (int slot = 0; slot < 4; slot++)
        assert_int_equal(c.workers[slot].is_connected, slot != stopped);
    expect_no_step_back();
}

/* Both say that they wait for the other: nobody is disconnected, and it does not last for ever. */
static void replicas_that_wait_for_each_other_are_sent_away(void **state) {
    (void)state;
    begin_replicated();
    const uint32_t generation = c.generation;
    goal(applied, 0);
    reply(c.owner[0], STRAIT_OK);
    reply(2, STRAIT_OK);
    for (int i = 0; i < 200 && c.generation == generation; i++) {
        now += S;
        for (int slot = 0; slot < 4; slot++)
            heartbeat(slot, c.workers[slot].inventory, 1,
                      strait_coordinator_stage_of(&c, slot) == 1 ? STRAIT_SWARM_SAME_STAGE : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_true(c.generation > generation);
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 1);
    for (int slot = 0; slot < 4; slot++)
        assert_true(c.workers[slot].is_connected);
}

/* Others are lost every few seconds, so that no phase lasts as long as its limit. */
static void a_worker_that_replies_to_nothing_is_found_in_a_storm(void **state) {
    (void)state;
    begin_replicated();
    const int silent = c.owner[0];
    int i = 0;
    for (; i < 20 && c.workers[silent].is_connected; i++) {
        for (int n = 0; n < 4; n++) {
            now += S;
            for (int slot = 0; slot < 12; slot++)
                if (c.workers[slot].is_known && c.workers[slot].is_connected)
                    heartbeat(slot, c.workers[slot].inventory, (uint32_t)(8 * i + n), 0);
            for (int slot = 0; slot < 12; slot++)
                if (slot != silent && c.workers[slot].is_known &&
                    strait_coordinator_awaits(&c, slot))
                    reply(slot, STRAIT_OK);
            feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        }
        lose(c.owner[1]);
        join(10 + i, strait_snapshot_inventory_empty());
    }
    assert_true(i > 1 && i < 8);
}

static void a_late_reply_makes_nobody_overdue(void **state) {
    (void)state;
    begin_replicated();
    const uint32_t generation = c.generation;
    lose(3);
    assert_int_equal(c.phase, STRAIT_PHASE_ASSIGN);
    feed((strait_swarm_event){
        .kind = STRAIT_SWARM_REPLY, .worker = 2, .generation = generation, .err = STRAIT_OK});
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    assert_true(c.workers[2].is_connected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_another_replica_is_not_disconnected),
        cmocka_unit_test(who_waits_for_a_replica_of_a_neighbour_is_not_disconnected),
        cmocka_unit_test(replicas_that_wait_for_each_other_are_sent_away),
        cmocka_unit_test(a_worker_that_replies_to_nothing_is_found_in_a_storm),
        cmocka_unit_test(a_late_reply_makes_nobody_overdue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
