/* Which workers get which stages, and how many layers. */
#include "swarm/coordinator/assign.h"

#include "check.h"

static int workers[STRAIT_RUN_STAGES], counts[STRAIT_RUN_STAGES];

static void equal_workers_get_equal_stages(void **state) {
    (void)state;
    const strait_assign_worker here[] = {{0, 9e9}, {0, 11e9}, {0, 10e9}, {0, 0}};
    strait_assign_spec spec = {
        .n_stages = 4, .n_layers = 12, .workers = here, .n_workers = 4, .layer_bytes = 1e6};
    CHECK_OK(strait_assign(&spec, workers, counts));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(workers[i], i);
        assert_int_equal(counts[i], 3);
    }
    spec.stride = 2;
    CHECK_OK(strait_assign(&spec, workers, counts));
    assert_int_equal(counts[0] + counts[1] + counts[2] + counts[3], 12);
    for (int i = 0; i < 4; i++)
        assert_int_equal(counts[i] % 2, 0);
}

static void fast_workers_get_more_layers_and_slow_ones_are_spares(void **state) {
    (void)state;
    const strait_assign_worker here[] = {{0, 1e9}, {0, 10e9}, {0, 2e9}, {0, 30e9}};
    const strait_assign_spec spec = {
        .n_stages = 2, .n_layers = 8, .workers = here, .n_workers = 4, .layer_bytes = 1e6};
    CHECK_OK(strait_assign(&spec, workers, counts));
    assert_int_equal(workers[0], 1);
    assert_int_equal(workers[1], 3);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 6);
}

static void stages_fit_into_memory(void **state) {
    (void)state;
    const strait_assign_worker here[] = {{3.5e6, 10e9}, {0, 10e9}, {0.5e6, 99e9}};
    strait_assign_spec spec = {
        .n_stages = 2, .n_layers = 10, .workers = here, .n_workers = 3, .layer_bytes = 1e6};
    CHECK_OK(strait_assign(&spec, workers, counts));
    assert_int_equal(workers[0], 0); // the third cannot hold a layer, however fast it is
    assert_int_equal(workers[1], 1);
    assert_int_equal(counts[0], 3);
    assert_int_equal(counts[1], 7);
    const int split[] = {5, 5};
    spec.split = split;
    CHECK_FAILS(strait_assign(&spec, workers, counts), STRAIT_EAGAIN, "stage 0 needs 5 MB");
    const strait_assign_worker small[] = {{3.5e6, 0}, {4.5e6, 0}};
    spec = (strait_assign_spec){
        .n_stages = 2, .n_layers = 10, .workers = small, .n_workers = 2, .layer_bytes = 1e6};
    assert_int_equal(strait_assign(&spec, workers, counts), STRAIT_EAGAIN);
}

static void too_few_workers_is_not_final(void **state) {
    (void)state;
    const strait_assign_worker here[] = {{0, 1e9}, {0, 1e9}};
    const strait_assign_spec spec = {.n_stages = 3, .n_layers = 8, .workers = here, .n_workers = 2};
    CHECK_FAILS(strait_assign(&spec, workers, counts), STRAIT_EAGAIN, "2 of 3 workers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_workers_get_equal_stages),
        cmocka_unit_test(fast_workers_get_more_layers_and_slow_ones_are_spares),
        cmocka_unit_test(stages_fit_into_memory),
        cmocka_unit_test(too_few_workers_is_not_final),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
