/* alarm.c - a residual that rises is told once, by the name of its boundary; one that is steady,
 * noisy, tiny or young is not. */
#include "train/residual_monitor.h"

#include "check.h"

#include <math.h>

/* Watches `n` steps at one level; returns how many alarms were raised. */
static int hold(strait_residual_monitor *alarm, double residual, int n) {
    int n_raised = 0;
    for (int i = 0; i < n; i++)
        n_raised += strait_residual_monitor_watch(alarm, residual) > 0.0;
    return n_raised;
}

static void test_a_rise_is_told_once(void **state) {
    (void)state;
    strait_residual_monitor alarm = {0};
    assert_int_equal(hold(&alarm, 0.1, 40), 0);
    assert_int_equal(hold(&alarm, 0.19, 100), 0);
    assert_int_equal(hold(&alarm, 0.21, 100), 1);
    assert_int_equal(hold(&alarm, 0.35, 100), 0); // less than twice what is now usual
    assert_int_equal(hold(&alarm, 0.95, 100), 1);
}

static void test_one_bad_step_is_none(void **state) {
    (void)state;
    strait_residual_monitor alarm = {0};
    assert_int_equal(hold(&alarm, 0.1, 40), 0);
    assert_int_equal(hold(&alarm, 0.5, 1), 0);
    assert_int_equal(hold(&alarm, 0.1, 40), 0);
    assert_int_equal(hold(&alarm, (double)NAN, 3), 0);
    assert_true(isfinite(alarm.mean));
}

static void test_a_slow_rise_is_told(void **state) {
    (void)state;
    strait_residual_monitor alarm = {0};
    int n_raised = 0;
    for (int i = 0; i < 1000; i++)
        n_raised += hold(&alarm, 0.01 + 1e-5 * i, 1);
    assert_int_equal(n_raised, 0);
    n_raised += hold(&alarm, 0.0202, 60);
    assert_int_equal(n_raised, 1);
}

static void test_much_is_more_when_little_is_left(void **state) {
    (void)state;
    strait_residual_monitor alarm = {0};
    assert_int_equal(hold(&alarm, 0.6, 40), 0);
    assert_int_equal(hold(&alarm, 0.79, 100), 0);
    assert_int_equal(hold(&alarm, 0.82, 100), 1);
}

static void test_rounding_and_first_steps_are_left_alone(void **state) {
    (void)state;
    strait_residual_monitor alarm = {0};
    assert_int_equal(hold(&alarm, 1e-8, 40), 0);
    assert_int_equal(hold(&alarm, 1.9e-5, 40), 0);
    assert_int_equal(hold(&alarm, 1e-3, 40), 1);
    strait_residual_monitor young = {0};
    assert_int_equal(hold(&young, 1e-3, 4), 0);
    assert_int_equal(hold(&young, 0.3, 60), 0);
    strait_residual_monitor lossless = {0};
    assert_int_equal(hold(&lossless, 0.0, 40), 0);
}

static void test_words_name_the_boundary(void **state) {
    (void)state;
    static strait_residual_monitors alarms;
    char text[200];
    double forward[] = {0.1, 0.1, 0.1}, backward[] = {0.2, 0.2, 0.2};
    const double *const residuals[2] = {forward, backward};
    for (int i = 0; i < 40; i++)
        assert_false(strait_residual_monitors_watch(&alarms, residuals, 3, text, sizeof text));
    assert_string_equal(text, "");
    backward[1] = 0.9;
    int i = 0;
    while (i < 20 && !strait_residual_monitors_watch(&alarms, residuals, 3, text, sizeof text))
        i++;
    assert_in_range(i, 1, 10);
    assert_non_null(strstr(text, "boundary 1 loses 0.9 of"));
    assert_non_null(strstr(text, "of its gradients, 0.2 was usual"));
    assert_null(strstr(text, "; "));
    char small[12];
    forward[0] = forward[2] = 1;
    for (i = 0; i < 20; i++)
        (void)strait_residual_monitors_watch(&alarms, residuals, 3, small, sizeof small);
    assert_true(strlen(small) < sizeof small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rise_is_told_once),
        cmocka_unit_test(test_one_bad_step_is_none),
        cmocka_unit_test(test_a_slow_rise_is_told),
        cmocka_unit_test(test_much_is_more_when_little_is_left),
        cmocka_unit_test(test_rounding_and_first_steps_are_left_alone),
        cmocka_unit_test(test_words_name_the_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
