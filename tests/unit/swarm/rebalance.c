/* When machines that came late should take stages over. */
#include "swarm/rebalance.h"

#include "check.h"

static double busy[4], speeds[4], needs[4];
static strait_assign_worker spares[3];
static strait_rebalance_spec spec;
static int successors[STRAIT_RUN_STAGES];

/* Four stages on equal machines, one of which is half as fast; a step takes as long as it. */
static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        busy[i] = i == 2 ? 0.8 : 0.4;
        speeds[i] = i == 2 ? 1e9 : 2e9;
        needs[i] = 1e9;
    }
    spares[0] = (strait_assign_worker){4e9, 2e9};
    spec = (strait_rebalance_spec){.n_stages = 4,
                                   .wall_s = 1.0,
                                   .busy_s = busy,
                                   .speeds = speeds,
                                   .need_bytes = needs,
                                   .spares = spares,
                                   .n_spares = 1,
                                   .left_s = 3600,
                                   .cost_s = 5};
    return 0;
}

static void expect(int a, int b, int c, int d) {
    const int wanted[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        assert_int_equal(successors[i], wanted[i]);
}

static void the_slowest_is_relieved(void **state) {
    (void)state;
    const double gain = strait_rebalance(&spec, successors); // 0.8 becomes 0.4, and 1.0 becomes 0.6
    assert_true(gain > 1.66 && gain < 1.67);
    expect(-1, -1, 0, -1);
    for (int i = 4; i < STRAIT_RUN_STAGES; i++)
        assert_int_equal(successors[i], -1);
}

static void not_by_those_that_are_no_faster(void **state) {
    (void)state;
    spares[0].flops = 1.29e9;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    expect(-1, -1, -1, -1);
    spares[0].flops = 0.0; // unknown
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    spares[0].flops = 2e9;
    speeds[2] = 0.0;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
}

static void not_by_those_that_are_too_small(void **state) {
    (void)state;
    spares[0].memory_bytes = 0.9e9;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    spares[1] = (strait_assign_worker){0, 1.5e9}; // unknown is enough
    spec.n_spares = 2;
    assert_true(strait_rebalance(&spec, successors) > 1.1);
    expect(-1, -1, 1, -1);
}

static void not_where_links_are_what_is_slow(void **state) {
    (void)state;
    spec.wall_s = 8.0; // 0.4 s less of 8 s
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    expect(-1, -1, -1, -1);
}

static void not_for_the_last_minutes(void **state) {
    (void)state;
    spec.left_s = 12.0; // of which 4.8 s would be saved
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    spec.left_s = 13.0;
    assert_true(strait_rebalance(&spec, successors) > 1.0);
}

/* All that are slow, the fastest spare to the slowest, but no two neighbours at once. */
static void neighbours_move_one_after_the_other(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        busy[i] = i == 0 ? 0.88 : 0.8;
        speeds[i] = 1e9;
    }
    for (int i = 0; i < 3; i++)
        spares[i] = (strait_assign_worker){0, (2 + i) * 1e9};
    spec.n_spares = 3;
    assert_true(strait_rebalance(&spec, successors) ==
                1.0); // one would stay slow: 0.88 to 0.8 of 1.0
    busy[3] = 0.1;
    assert_true(strait_rebalance(&spec, successors) > 1.5);
    expect(2, -1, 0, -1);
}

static void a_stage_without_neighbours_stays(void **state) {
    (void)state;
    spec.n_stages = 1;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    assert_int_equal(successors[0], -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_slowest_is_relieved, set_up),
        cmocka_unit_test_setup(not_by_those_that_are_no_faster, set_up),
        cmocka_unit_test_setup(not_by_those_that_are_too_small, set_up),
        cmocka_unit_test_setup(not_where_links_are_what_is_slow, set_up),
        cmocka_unit_test_setup(not_for_the_last_minutes, set_up),
        cmocka_unit_test_setup(neighbours_move_one_after_the_other, set_up),
        cmocka_unit_test_setup(a_stage_without_neighbours_stays, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
