/* When spares that joined late take over stages. */
#include "swarm/coordinator/rebalance.h"

#include "check.h"

static double busy[4], speeds[4], needs[4];
static strait_assign_worker spares[3];
static strait_rebalance_spec spec;
static int successors[STRAIT_RUN_STAGES];

/* Four stages, one of them on a worker of half the speed, which limits the step. */
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

static void moves_the_slowest_stage(void **state) {
    (void)state;
    const double gain = strait_rebalance(&spec,
                                         successors); // compute 0.8 to 0.4 s, step 1.0 to 0.6 s
    assert_true(gain > 1.66 && gain < 1.67);
    expect(-1, -1, 0, -1);
    for (int i = 4; i < STRAIT_RUN_STAGES; i++)
        assert_int_equal(successors[i], -1);
}

static void ignores_spares_that_are_not_faster(void **state) {
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

static void ignores_spares_with_too_little_memory(void **state) {
    (void)state;
    spares[0].memory_bytes = 0.9e9;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    spares[1] = (strait_assign_worker){0, 1.5e9}; // unknown memory counts as enough
    spec.n_spares = 2;
    assert_true(strait_rebalance(&spec, successors) > 1.1);
    expect(-1, -1, 1, -1);
}

static void moves_nothing_when_links_are_the_limit(void **state) {
    (void)state;
    spec.wall_s = 8.0; // 0.4 s less of 8 s
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    expect(-1, -1, -1, -1);
}

static void moves_nothing_shortly_before_the_end(void **state) {
    (void)state;
    spec.left_s = 12.0; // of which 4.8 s would be saved
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    spec.left_s = 13.0;
    assert_true(strait_rebalance(&spec, successors) > 1.0);
}

/* All slow stages move, the slowest to the fastest spare, except neighbours of one that moves. */
static void never_moves_two_neighbours_at_once(void **state) {
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

static void never_moves_a_single_stage(void **state) {
    (void)state;
    spec.n_stages = 1;
    assert_true(strait_rebalance(&spec, successors) == 1.0);
    assert_int_equal(successors[0], -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(moves_the_slowest_stage, set_up),
        cmocka_unit_test_setup(ignores_spares_that_are_not_faster, set_up),
        cmocka_unit_test_setup(ignores_spares_with_too_little_memory, set_up),
        cmocka_unit_test_setup(moves_nothing_when_links_are_the_limit, set_up),
        cmocka_unit_test_setup(moves_nothing_shortly_before_the_end, set_up),
        cmocka_unit_test_setup(never_moves_two_neighbours_at_once, set_up),
        cmocka_unit_test_setup(never_moves_a_single_stage, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
