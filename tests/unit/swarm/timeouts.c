/* The coordinator: workers that send their neighbours nothing although their links are up. */
#include "coordinator_rig.h"

/* What a worker that sends nothing reports. */
enum claim {
    BUSY,    // that it computes
    WAITING, // that it waits, as all others do
    DONE,    // that it has finished
    ACCUSING // that nothing arrived from others
};

static strait_fingerprint cheat;

static int stage_of_cheat(void) {
    const int at = strait_coordinator_find(&c, &cheat);
    return at >= 0 ? c.workers[at].stage : -1;
}

/* `n_stages` stages and `n` workers; the cheat owns `stage`. */
static void begin_with(int n_stages, int n, int stage) {
    begin_with_stages(n_stages, n);
    cheat = c.workers[c.owner[stage]].key;
}

/* A step that the cheat keeps all others from finishing. The owner of `complains` reports the
 * timeout first; -1: a neighbour of the cheat. */
static void break_step(enum claim claim, int complains) {
    const int stage = stage_of_cheat();
    goal(0, 0);
    for (int i = 0; i < 3; i++) {
        now += S;
        for (int k = 0; k < c.config.n_stages; k++)
            heartbeat(c.owner[k], strait_snapshot_inventory_empty(),
                      c.workers[c.owner[k]].progress + (k == stage),
                      k != stage || claim == WAITING || claim == ACCUSING);
    }
    if (claim == DONE) reply(c.owner[stage], STRAIT_OK);
    if (complains < 0) complains = stage > 0 ? stage - 1 : stage + 1;
    if (claim == ACCUSING) complains = stage;
    if (complains == stage && claim != ACCUSING) complains = stage > 0 ? stage - 1 : stage + 1;
    reply(c.owner[complains], STRAIT_ETIMEDOUT);
}

static void moves_the_stage_of_a_worker_that_never_finishes(void **state) {
    (void)state;
    begin_with(2, 3, 1);
    const int at = c.owner[1];
    const int honest = c.owner[0];
    break_step(BUSY, -1);
    assert_null(find(STRAIT_SWARM_RELEASE, -1)); // the first timeout may be chance
    recover();
    assert_int_equal(c.owner[1], at);
    break_step(BUSY, -1);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, at);
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    assert_null(find(STRAIT_SWARM_BAN, -1));
    recover();
    assert_int_not_equal(c.owner[1], at);
    assert_int_equal(c.owner[0], honest);
    run_step(0, 0);
    feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = honest});
    recover(); // it is used again if there is no other worker
    assert_int_equal(c.owner[0], at);
}

static void moves_nothing_without_a_spare(void **state) {
    (void)state;
    begin_with(2, 2, 0);
    const int at = c.owner[0];
    for (int i = 0; i < 10; i++) {
        break_step(BUSY, -1);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        recover();
        assert_int_equal(c.owner[0], at);
    }
    join(2, strait_snapshot_inventory_empty());
    break_step(BUSY, -1);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, at);
    recover();
    assert_int_equal(c.workers[at].stage, -1);
}

/* Whatever it claims, whichever stage it owns and whoever reports first, one spare is enough. */
static void replaces_the_cheat_after_a_bounded_number_of_steps(void **state) {
    (void)state;
    enum {
        STAGES = 5
    };
    for (int claim = BUSY; claim <= ACCUSING; claim++)
        for (int stage = 0; stage < STAGES; stage++)
            for (int first = -1; first < STAGES; first++) {
                int n_broken = 0;
                begin_with(STAGES, STAGES + 1, stage);
                while (stage_of_cheat() >= 0 && n_broken <= STAGES + STRAIT_SWARM_TIMEOUTS) {
                    break_step((enum claim)claim, first);
                    assert_null(find(STRAIT_SWARM_BAN, -1));
                    recover();
                    n_broken++;
                }
                assert_int_equal(stage_of_cheat(), -1);
                assert_true(claim != BUSY || n_broken == STRAIT_SWARM_TIMEOUTS);
                run_step(0, 0);
            }
}

/* Two honest workers whose link loses everything: one of them is replaced. */
static void replaces_one_end_of_a_link_that_loses_data(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        begin_with(2, 3, 0);
        const int owners[] = {c.owner[0], c.owner[1]};
        for (int i = 0; i < STRAIT_SWARM_TIMEOUTS; i++) {
            break_step(first == 0 ? ACCUSING : WAITING, first);
            recover();
        }
        assert_int_equal(c.owner[first], owners[first]);
        assert_int_not_equal(c.owner[1 - first], owners[1 - first]);
    }
}

/* Timeouts during setup and lost links do not count against neighbours. */
static void counts_only_timeouts_of_steps(void **state) {
    (void)state;
    begin_with(2, 3, 0);
    for (int i = 0; i < 2 * STRAIT_SWARM_TIMEOUTS; i++) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_slow = 1}});
        reply(c.owner[1], STRAIT_ETIMEDOUT);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        recover();
        goal(0, 0);
        reply(c.owner[1], STRAIT_ECLOSED);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        recover();
    }
    assert_int_equal(c.workers[c.owner[0]].n_timeouts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_the_stage_of_a_worker_that_never_finishes),
        cmocka_unit_test(moves_nothing_without_a_spare),
        cmocka_unit_test(replaces_the_cheat_after_a_bounded_number_of_steps),
        cmocka_unit_test(replaces_one_end_of_a_link_that_loses_data),
        cmocka_unit_test(counts_only_timeouts_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
