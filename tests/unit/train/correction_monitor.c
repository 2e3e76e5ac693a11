/* A run says when weights are projected back to their subspace, once, and again when that lasts. */
#include "train/report/correction_monitor.h"

#include "check.h"

#include <string.h>

static void says_the_first_and_the_lasting_corrections(void **state) {
    (void)state;
    strait_correction_monitor monitor = {.is_started = 0};
    const double leaks[] = {1e-6, 0.25};
    double corrections[] = {0, 7}; // a resumed run continues to count
    char text[512] = "";
    assert_false(
        strait_correction_monitor_watch(&monitor, corrections, leaks, 2, text, sizeof text));
    corrections[1] = 8;
    assert_true(
        strait_correction_monitor_watch(&monitor, corrections, leaks, 2, text, sizeof text));
    assert_non_null(strstr(text, "boundary 1: more of the stream left the subspace"));
    assert_non_null(strstr(text, "0.25"));
    assert_null(strstr(text, "boundary 0"));
    for (int i = 0; i < 13; i++) { // one more in every other step
        corrections[1] += i % 2;
        assert_false(
            strait_correction_monitor_watch(&monitor, corrections, leaks, 2, text, sizeof text));
    }
    corrections[1]++;
    (void)strcpy(text, "before");
    assert_true(
        strait_correction_monitor_watch(&monitor, corrections, leaks, 2, text, sizeof text));
    assert_non_null(strstr(text, "before; boundary 1: the weights of stage 1 were projected in 8"));
    assert_non_null(strstr(text, "form a has become form b"));
    corrections[1]++;
    assert_false(
        strait_correction_monitor_watch(&monitor, corrections, leaks, 2, text, sizeof text));
}

/* Corrections now and then do not make another form. */
static void pauses_start_the_count_anew(void **state) {
    (void)state;
    strait_correction_monitor monitor = {.is_started = 0};
    const double leaks[] = {0.25};
    double corrections[] = {0};
    char text[512] = "";
    (void)strait_correction_monitor_watch(&monitor, corrections, leaks, 1, text, sizeof text);
    for (int i = 0; i < 60; i++) {
        corrections[0] += i % 3 == 1;
        const int says = strait_correction_monitor_watch(&monitor, corrections, leaks, 1, text,
                                                         sizeof text);
        assert_int_equal(says, i == 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_the_first_and_the_lasting_corrections),
        cmocka_unit_test(pauses_start_the_count_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
