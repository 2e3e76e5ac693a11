/* The coordinator's machine: neighbours that send nothing although their links live. */
#include "coordinator_rig.h"

/* What a machine that sends nothing says of itself. */
enum claim {
    BUSY,    // that it computes
    WAITING, // that it waits, as all others do
    DONE,    // that it has made the step
    ACCUSING // that nothing came from others
};

static strait_fingerprint cheat;

static int stage_of_cheat(void) {
    const int at = strait_coordinator_find(&c, &cheat);
    return at >= 0 ? c.workers[at].stage : -1;
}

/* `n_stages` stages and `n` machines; the cheat owns `stage`. */
static void begin_with(int n_stages, int n, int stage) {
    begin_stages(n_stages, n);
    cheat = c.workers[c.owner[stage]].key;
}

/* A step that the cheat lets nobody finish. The owner of `complains` is the first to say so; -1:
 * the nearest to the cheat is. */
static void break_step(enum claim claim, int complains) {
    const int stage = stage_of_cheat();
    goal(0, 0);
    for (int i = 0; i < 3; i++) {
        now += S;
        for (int k = 0; k < c.config.n_stages; k++)
            pulse(c.owner[k], strait_snapshot_inventory_empty(),
                  c.workers[c.owner[k]].progress + (k == stage),
                  k != stage || claim == WAITING || claim == ACCUSING);
    }
    if (claim == DONE) reply(c.owner[stage], STRAIT_OK);
    if (complains < 0) complains = stage > 0 ? stage - 1 : stage + 1;
    if (claim == ACCUSING) complains = stage;
    if (complains == stage && claim != ACCUSING) complains = stage > 0 ? stage - 1 : stage + 1;
    reply(c.owner[complains], STRAIT_ETIMEDOUT);
}

static void who_is_busy_for_ever_loses_its_stage(void **state) {
    (void)state;
    begin_with(2, 3, 1);
    const int at = c.owner[1];
    const int honest = c.owner[0];
    break_step(BUSY, -1);
    assert_null(find(STRAIT_SWARM_RELEASE, -1)); // once may be chance
    bring_back();
    assert_int_equal(c.owner[1], at);
    break_step(BUSY, -1);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, at);
    assert_null(find(STRAIT_SWARM_DISCONNECT, -1));
    assert_null(find(STRAIT_SWARM_BAN, -1));
    bring_back();
    assert_int_not_equal(c.owner[1], at);
    assert_int_equal(c.owner[0], honest);
    make_step(0, 0);
    tell((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = honest});
    bring_back(); // it is still good enough when nobody else is there
    assert_int_equal(c.owner[0], at);
}

static void without_a_spare_nothing_moves(void **state) {
    (void)state;
    begin_with(2, 2, 0);
    const int at = c.owner[0];
    for (int i = 0; i < 10; i++) {
        break_step(BUSY, -1);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        bring_back();
        assert_int_equal(c.owner[0], at);
    }
    join(2, strait_snapshot_inventory_empty());
    break_step(BUSY, -1);
    assert_int_equal(find(STRAIT_SWARM_RELEASE, -1)->worker, at);
    bring_back();
    assert_int_equal(c.workers[at].stage, -1);
}

/* Whatever it says, wherever it is, and whoever is the first to complain: one spare is enough. */
static void the_cheat_has_its_turn(void **state) {
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
                    bring_back();
                    n_broken++;
                }
                assert_int_equal(stage_of_cheat(), -1);
                assert_true(claim != BUSY || n_broken == STRAIT_SWARM_TIMEOUTS);
                make_step(0, 0);
            }
}

/* Two honest machines whose link swallows everything: one of them makes way. */
static void a_link_that_swallows_costs_one_place(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        begin_with(2, 3, 0);
        const int owners[] = {c.owner[0], c.owner[1]};
        for (int i = 0; i < STRAIT_SWARM_TIMEOUTS; i++) {
            break_step(first == 0 ? ACCUSING : WAITING, first);
            bring_back();
        }
        assert_int_equal(c.owner[first], owners[first]);
        assert_int_not_equal(c.owner[1 - first], owners[1 - first]);
    }
}

/* What is late when a stage is made, or sent to the coordinator, is nobody's neighbour's fault. */
static void other_delays_are_no_suspicion(void **state) {
    (void)state;
    begin_with(2, 3, 0);
    for (int i = 0; i < 2 * STRAIT_SWARM_TIMEOUTS; i++) {
        tell((strait_swarm_event){.kind = STRAIT_SWARM_GOAL, .goal = {.stage = -1, .is_slow = 1}});
        reply(c.owner[1], STRAIT_ETIMEDOUT);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        bring_back();
        goal(0, 0);
        reply(c.owner[1], STRAIT_ECLOSED);
        assert_null(find(STRAIT_SWARM_RELEASE, -1));
        bring_back();
    }
    assert_int_equal(c.workers[c.owner[0]].n_timeouts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_busy_for_ever_loses_its_stage),
        cmocka_unit_test(without_a_spare_nothing_moves),
        cmocka_unit_test(the_cheat_has_its_turn),
        cmocka_unit_test(a_link_that_swallows_costs_one_place),
        cmocka_unit_test(other_delays_are_no_suspicion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
