/* Workers that have not replied to an average and say why: that is neither a reason to disconnect
 * them nor to send others away. */
#include "averages_rig.h"

/* All but one victim have replied, and nothing arrives any more: it stays until the time of the
 * average is over, even if that is longer than a worker may otherwise make no progress. */
static void a_starved_worker_is_not_stalled(void **state) {
    (void)state;
    begin_pipelines();
    for (int i = 0; i < STAGES; i++)
        c.config.average_ns[i] = 2000 * S;
    c.config.deadline_ns = 300 * S;
    c.config.stall_timeout_ns = 60 * S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_average = 2}});
    for (int i = 0; i < 6; i++)
        if (i != 3) reply(i, STRAIT_OK);
    for (int s = 0; s < 400 && c.phase == STRAIT_PHASE_WORK; s += 5) {
        now += 5 * S;
        for (int i = 0; i < 6; i++)
            heartbeat(i, c.workers[i].inventory, 7, i == 3 ? lacking(1) : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        assert_true(c.workers[3].is_connected && c.workers[3].n_penalties == 0);
    }
    assert_true(c.phase != STRAIT_PHASE_WORK && is_left_out(3)); // the dispute is decided
}

/* Two that name each other, and have not replied, are in dispute. The third pipeline has nothing to
 * do with it. */
static void two_that_name_each_other_are_in_dispute(void **state) {
    (void)state;
    const int lacked[6] = {-1, 3, -1, 1, -1, -1}, late[6] = {0, 1, 0, 1, 0, 0};
    begin_pipelines();
    begin_average(lacked, late, 2000);
    now += S;
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    settle();
    assert_int_equal(is_left_out(1) + is_left_out(3), 1);
    assert_int_equal(c.workers[5].away_until_ns, 0);
    assert_true(c.workers[1].is_connected && c.workers[3].is_connected);
    assert_int_equal(strait_coordinator_n_replicas(&c, 0), 2);
}

/* One that is named, has not replied, and names nobody is late itself, whatever it waits for. */
static void one_that_names_nobody_is_late(void **state) {
    (void)state;
    begin_pipelines();
    feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_average = 2}});
    for (int i = 0; i < 6; i++)
        if (i != 1 && i != 3) reply(i, STRAIT_OK);
    for (int s = 0; s < 2000 && c.phase == STRAIT_PHASE_WORK; s += 5) {
        now += 5 * S;
        for (int i = 0; i < 6; i++)
            heartbeat(i, c.workers[i].inventory, (uint32_t)s,
                      i == 1   ? lacking(3)
                      : i == 3 ? STRAIT_SWARM_SAME_STAGE
                               : 0);
        feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    }
    assert_false(c.workers[3].is_connected);
    assert_true(c.workers[1].is_connected && c.workers[5].away_until_ns == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_starved_worker_is_not_stalled),
        cmocka_unit_test(two_that_name_each_other_are_in_dispute),
        cmocka_unit_test(one_that_names_nobody_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
