#include "report/statistics.h"

#include "check.h"

/* Values of printed tables of the distribution. */
static void test_quantiles_match_printed_tables(void **state) {
    (void)state;
    static const struct {
        double probability, freedom, t;
    } cases[] = {{0.975, 1, 12.7062},  {0.975, 2, 4.30265},  {0.975, 4, 2.77645},
                 {0.975, 10, 2.22814}, {0.975, 30, 2.04227}, {0.95, 5, 2.01505},
                 {0.995, 3, 5.84091},  {0.975, 1e6, 1.95997}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_NEAR(strait_student_quantile(cases[i].probability, cases[i].freedom), cases[i].t,
                   1e-5 * cases[i].t);
}

/* 2, 4, 4, 4, 5, 5, 7, 9 have mean 5 and a sum of squared deviations of 32. */
static void test_mean_and_interval(void **state) {
    (void)state;
    const double values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    const strait_estimate e = strait_estimate_mean(values, 8);
    CHECK(e.n == 8);
    CHECK_NEAR(e.mean, 5, 1e-12);
    CHECK_NEAR(e.deviation, sqrt(32.0 / 7.0), 1e-12);
    CHECK_NEAR(e.half, 2.364624 * sqrt(32.0 / 7.0) / sqrt(8.0), 1e-5);
}

/* The seeds differ by 1, the pairs by 0.1: pairing removes what the seed changes. */
static void test_pairs_cancel_what_they_share(void **state) {
    (void)state;
    const double a[] = {4.11, 5.10, 6.09};
    const double b[] = {4.00, 5.00, 6.00};
    const strait_estimate e = strait_estimate_paired(a, b, 3);
    CHECK_NEAR(e.mean, 0.1, 1e-12);
    CHECK_NEAR(e.half, 4.302653 * 0.01 / sqrt(3.0), 1e-7);
    CHECK(strait_estimate_mean(a, 3).half > 2.0);
}

static void test_few_values_have_no_interval(void **state) {
    (void)state;
    const double one = 3;
    CHECK(isnan(strait_estimate_mean(&one, 1).half) && isnan(strait_estimate_mean(&one, 0).mean));
    CHECK_NEAR(strait_estimate_mean(&one, 1).mean, 3, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles_match_printed_tables),
        cmocka_unit_test(test_mean_and_interval),
        cmocka_unit_test(test_pairs_cancel_what_they_share),
        cmocka_unit_test(test_few_values_have_no_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
