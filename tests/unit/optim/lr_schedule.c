/* lr_schedule.c - schedules against values computed by hand. */
#include "optim/lr_schedule.h"

#include "check.h"

static void linear_is_one_minus_fraction(void **state) {
    (void)state;
    const strait_lr_schedule schedule = {STRAIT_LR_LINEAR, .steps = 600};
    for (int64_t step = 0; step < 600; step++)
        assert_true(strait_lr_schedule_factor(&schedule, step) == (float)(1 - (double)step / 600));
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 600), 0, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 6000), 0, 0);
}

static void warmup_rises_linearly(void **state) {
    (void)state;
    const strait_lr_schedule schedule = {STRAIT_LR_LINEAR, .steps = 14, .warmup = 4, .final = 0.5f};
    const double expected[] = {0.25, 0.5, 0.75, 1, 1, 0.95, 0.9, 0.85, 0.8, 0.75};
    for (int i = 0; i < 10; i++)
        CHECK_NEAR(strait_lr_schedule_factor(&schedule, i), expected[i], 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 13), 0.55, 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 14), 0.5, 1e-7);
}

static void cosine_is_halfway_at_half_time(void **state) {
    (void)state;
    const strait_lr_schedule schedule = {STRAIT_LR_COSINE, .steps = 108, .warmup = 8,
                                         .final = 0.1f};
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 8), 1, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 58), 0.55, 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 33), 0.1 + 0.9 * (1 + 0.70710678118) / 2, 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 108), 0.1, 1e-7);
}

static void constant_decays_in_the_last_steps(void **state) {
    (void)state;
    const strait_lr_schedule schedule = {STRAIT_LR_CONSTANT, 100, .warmup = 10, .decay_steps = 20};
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 4), 0.5, 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 10), 1, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 80), 1, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 85), 0.75, 1e-7);
    CHECK_NEAR(strait_lr_schedule_factor(&schedule, 99), 0.05, 1e-7);
    const strait_lr_schedule forever = {STRAIT_LR_CONSTANT, .steps = 100};
    CHECK_NEAR(strait_lr_schedule_factor(&forever, 99), 1, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&forever, 1000), 1, 0);
}

static void edges_stay_finite(void **state) {
    (void)state;
    const strait_lr_schedule all_warmup = {STRAIT_LR_COSINE, .steps = 5, .warmup = 5};
    CHECK_OK(strait_lr_schedule_check(&all_warmup));
    CHECK_NEAR(strait_lr_schedule_factor(&all_warmup, 4), 1, 0);
    CHECK_NEAR(strait_lr_schedule_factor(&all_warmup, 5), 0, 0);
    const strait_lr_schedule single = {STRAIT_LR_LINEAR, .steps = 1};
    CHECK_NEAR(strait_lr_schedule_factor(&single, 0), 1, 0);
}

static void rejects_impossible_schedules(void **state) {
    (void)state;
    const strait_lr_schedule none = {STRAIT_LR_LINEAR, .steps = 0};
    CHECK_FAILS(strait_lr_schedule_check(&none), STRAIT_ECONFIG, "steps is 0, expected 1 or more");
    const strait_lr_schedule negative = {STRAIT_LR_LINEAR, .steps = 9, .warmup = -1};
    CHECK_FAILS(strait_lr_schedule_check(&negative), STRAIT_ECONFIG, "expected 0 or more");
    const strait_lr_schedule crowded = {STRAIT_LR_CONSTANT, .steps = 9, .warmup = 5,
                                        .decay_steps = 5};
    CHECK_FAILS(strait_lr_schedule_check(&crowded), STRAIT_ECONFIG, "do not fit into 9 steps");
    const strait_lr_schedule long_warmup = {STRAIT_LR_COSINE, .steps = 9, .warmup = 10};
    CHECK_FAILS(strait_lr_schedule_check(&long_warmup), STRAIT_ECONFIG, "warm-up 10");
    const strait_lr_schedule nan_final = {STRAIT_LR_LINEAR, .steps = 9, .final = NAN};
    CHECK_FAILS(strait_lr_schedule_check(&nan_final), STRAIT_ECONFIG,
                "final is nan, expected 0 to 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_one_minus_fraction),
        cmocka_unit_test(warmup_rises_linearly),
        cmocka_unit_test(cosine_is_halfway_at_half_time),
        cmocka_unit_test(constant_decays_in_the_last_steps),
        cmocka_unit_test(edges_stay_finite),
        cmocka_unit_test(rejects_impossible_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
