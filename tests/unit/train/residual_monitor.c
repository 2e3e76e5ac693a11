/* The residual monitor warns once when the residual of a boundary rises; it does not warn for one
 * that is steady, noisy, tiny, or in its first steps. */
#include "train/report/residual_monitor.h"

#include "check.h"

#include <math.h>

/* Feeds `n` steps with the same residual; returns the number of warnings. */
static int watch_steps(strait_residual_monitor *monitor, double residual, int n) {
    int n_warnings = 0;
    for (int i = 0; i < n; i++)
        n_warnings += strait_residual_monitor_watch(monitor, residual) > 0.0;
    return n_warnings;
}

static void warns_once_about_a_rise(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    assert_int_equal(watch_steps(&monitor, 0.1, 40), 0);
    assert_int_equal(watch_steps(&monitor, 0.19, 100), 0);
    assert_int_equal(watch_steps(&monitor, 0.21, 100), 1);
    assert_int_equal(watch_steps(&monitor, 0.35, 100), 0); // less than twice the new mean
    assert_int_equal(watch_steps(&monitor, 0.95, 100), 1);
}

static void ignores_a_single_outlier(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    assert_int_equal(watch_steps(&monitor, 0.1, 40), 0);
    assert_int_equal(watch_steps(&monitor, 0.5, 1), 0);
    assert_int_equal(watch_steps(&monitor, 0.1, 40), 0);
    assert_int_equal(watch_steps(&monitor, (double)NAN, 3), 0);
    assert_true(isfinite(monitor.mean));
}

static void warns_about_a_slow_rise(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    int n_warnings = 0;
    for (int i = 0; i < 1000; i++)
        n_warnings += watch_steps(&monitor, 0.01 + 1e-5 * i, 1);
    assert_int_equal(n_warnings, 0);
    n_warnings += watch_steps(&monitor, 0.0202, 60);
    assert_int_equal(n_warnings, 1);
}

static void lowers_the_limit_for_large_residuals(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    assert_int_equal(watch_steps(&monitor, 0.6, 40), 0);
    assert_int_equal(watch_steps(&monitor, 0.79, 100), 0);
    assert_int_equal(watch_steps(&monitor, 0.82, 100), 1);
}

static void does_not_warn_about_a_steady_residual_above_one(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    assert_int_equal(watch_steps(&monitor, 1.3, 100), 0);
    assert_int_equal(watch_steps(&monitor, 2.5, 100), 0);
    assert_int_equal(watch_steps(&monitor, 2.7, 100), 1);
    strait_residual_monitor risen = {0};
    assert_int_equal(watch_steps(&risen, 0.9, 40), 0);
    assert_int_equal(watch_steps(&risen, 1.2, 100), 1);
}

static void ignores_rounding_errors_and_first_steps(void **state) {
    (void)state;
    strait_residual_monitor monitor = {0};
    assert_int_equal(watch_steps(&monitor, 1e-8, 40), 0);
    assert_int_equal(watch_steps(&monitor, 1.9e-5, 40), 0);
    assert_int_equal(watch_steps(&monitor, 1e-3, 40), 1);
    strait_residual_monitor young = {0};
    assert_int_equal(watch_steps(&young, 1e-3, 4), 0);
    assert_int_equal(watch_steps(&young, 0.3, 60), 0);
    strait_residual_monitor lossless = {0};
    assert_int_equal(watch_steps(&lossless, 0.0, 40), 0);
}

static void warning_names_boundary_and_direction(void **state) {
    (void)state;
    static strait_residual_monitors monitors;
    char text[200];
    double forward[] = {0.1, 0.1, 0.1}, backward[] = {0.2, 0.2, 0.2};
    const double *const residuals[2] = {forward, backward};
    for (int i = 0; i < 40; i++)
        assert_false(strait_residual_monitors_watch(&monitors, residuals, 3, text, sizeof text));
    assert_string_equal(text, "");
    backward[1] = 0.9;
    int i = 0;
    while (i < 20 && !strait_residual_monitors_watch(&monitors, residuals, 3, text, sizeof text))
        i++;
    assert_in_range(i, 1, 10);
    assert_non_null(strstr(text, "boundary 1 loses 0.9 of"));
    assert_non_null(strstr(text, "of its gradients, up from 0.2"));
    assert_null(strstr(text, "; "));
    char small[12];
    forward[0] = forward[2] = 1;
    for (i = 0; i < 20; i++)
        (void)strait_residual_monitors_watch(&monitors, residuals, 3, small, sizeof small);
    assert_true(strlen(small) < sizeof small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warns_once_about_a_rise),
        cmocka_unit_test(ignores_a_single_outlier),
        cmocka_unit_test(warns_about_a_slow_rise),
        cmocka_unit_test(lowers_the_limit_for_large_residuals),
        cmocka_unit_test(does_not_warn_about_a_steady_residual_above_one),
        cmocka_unit_test(ignores_rounding_errors_and_first_steps),
        cmocka_unit_test(warning_names_boundary_and_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
