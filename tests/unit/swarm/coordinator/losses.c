/* Further replicas that come and go: each costs a generation, and so does taking one back. */
#include "replicas_rig.h"

enum {
    HELPER = 2
};

static void begin_helped(void) {
    begin_with_stages(STAGES, 4);
    c.config.replicas_limit = 8;
    applied = 0;
    step_once();
}

/* Returns whether it may be taken back at once. */
static int comes_back(void) {
    return strait_coordinator_may_help(&c, HELPER, 1);
}

static void wait_for(int seconds) {
    now += seconds * S;
    for (int slot = 0; slot < 4; slot++)
        beat(slot, 0);
}

static void help(void) {
    feed((strait_swarm_event){.kind = STRAIT_SWARM_HELP, .worker = HELPER, .stage = 1});
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 2);
}

enum way {
    CUT,
    REPLACED, // by a new link
    LEFT,
    WAYS
};

static void leave(enum way way) {
    if (way == CUT) feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = HELPER});
    if (way == LEFT) {
        feed((strait_swarm_event){.kind = STRAIT_SWARM_LEAVE, .worker = HELPER});
        step_once();
    }
    join(HELPER, strait_snapshot_inventory_empty());
    settle();
    step_once();
    assert_int_equal(strait_coordinator_n_replicas(&c, 1), 1);
}

static void one_that_comes_and_goes_is_taken_back_later_each_time(void **state) {
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        begin_helped();
        help();
        leave((enum way)way);
        assert_true(comes_back()); // once is bad luck
        for (int i = 0; i < 4; i++) {
            const int seconds = 10 << i;
            help();
            leave((enum way)way);
            assert_false(comes_back());
            wait_for(seconds - 5);
            assert_false(comes_back());
            wait_for(10);
            assert_true(comes_back());
        }
    }
}

/* Steps that it takes part in make up for it. */
static void one_that_stays_is_forgiven(void **state) {
    (void)state;
    begin_helped();
    for (int i = 0; i < 8; i++) {
        help();
        for (int k = 0; k < STRAIT_SWARM_CALM_STEPS; k++)
            step_once();
        leave(CUT);
        assert_true(comes_back());
    }
}

/* All state is lost: the steps so far are computed again. */
static void begin_again(void) {
    applied = 0;
    now += 6 * S; // so long the next generation may wait after failures
    feed((strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    settle();
    while (applied < c.committed) {
        goal(applied, 0);
        settle();
        goal(applied++, 1);
        settle();
    }
}

/* An outage of the host's own link takes all workers: that is no fault of one of them. */
static void an_outage_of_the_host_is_not_counted(void **state) {
    (void)state;
    begin_helped();
    for (int i = 0; i < 4; i++) {
        help();
        for (int k = 0; k < 4; k++) {
            feed((strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = (HELPER + k) % 4});
            now += S / 4;
        }
        for (int slot = 0; slot < 4; slot++)
            join(slot, strait_snapshot_inventory_empty());
        begin_again();
        assert_true(comes_back());
        assert_int_equal(c.workers[HELPER].n_sent_away, 1); // so that it is not forgotten
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_comes_and_goes_is_taken_back_later_each_time),
        cmocka_unit_test(an_outage_of_the_host_is_not_counted),
        cmocka_unit_test(one_that_stays_is_forgiven)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
