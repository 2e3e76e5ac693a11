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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_starved_worker_is_not_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
