/* Two replicas whose averages keep the length of their differences (train.outer.keep_norm), against
 * plain loops. */
#include "outer_rig.h"
#include "stage/outer/outer_state.h"

/* What the replicas have learnt, replica after replica. */
static float changes[2][VALUES];

static void learn(void) {
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < VALUES; i++)
            sides[r].weights[i] = initial(i) - changes[r][i];
}

/* The factor of the block of value i, from the definition. */
static double factor_of(int i) {
    const int first = i / STRAIT_OUTER_BLOCK * STRAIT_OUTER_BLOCK;
    double mean = 0.0, squares = 0.0;
    for (int k = first; k < first + STRAIT_OUTER_BLOCK && k < VALUES; k++) {
        const double a = (double)changes[0][k], b = (double)changes[1][k];
        mean += (a + b) * (a + b) / 4.0;
        squares += (a * a + b * b) / 2.0;
    }
    return mean > 0.0 ? fmin(sqrt(squares / mean), sqrt(2.0)) : 1.0;
}

/* Averages once; returns the largest error of a weight, relative to the largest change. */
static double error_of_one(int is_scaled) {
    const double step = n_warmup > 0 ? 1.0 : (double)rate * (1.0 + (double)momentum);
    double error = 0.0, most = 0.0;
    open_both(32, 1, 0);
    learn();
    average(1, BOTH);
    CHECK(are_equal());
    for (int i = 0; i < VALUES; i++) {
        const double d = ((double)changes[0][i] + (double)changes[1][i]) / 2.0;
        const double change = step * d * (is_scaled ? factor_of(i) : 1.0);
        error = fmax(error, fabs((double)initial(i) - (double)sides[0].weights[i] - change));
        most = fmax(most, fabs(change));
    }
    close_both();
    return error / most;
}

/* Halves that agree more and more, from one end of the values to the other. */
static void fill_changes(void) {
    for (int i = 0; i < VALUES; i++) {
        const float common = (float)i / (float)VALUES;
        for (int r = 0; r < 2; r++)
            changes[r][i] = 0.02f * common * (float)(i % 23 - 11) +
                            learnt(r, (i % 1009) * (i % 1009) % 1009);
    }
}

static void an_average_is_as_long_as_its_parts(void **state) {
    (void)state;
    fill_changes();
    keeps_norm = 1;
    CHECK(error_of_one(1) < 1e-4);
    CHECK(error_of_one(0) > 1e-2); // the test would notice a factor of 1
    CHECK(factor_of(0) > 1.2 && factor_of(VALUES - 100) < 1.1);
}

/* What nearly cancels has no direction worth such a length. */
static void a_factor_is_at_most_that_of_noise(void **state) {
    (void)state;
    for (int i = 0; i < VALUES; i++) {
        changes[0][i] = learnt(0, i);
        changes[1][i] = -0.8f * learnt(0, i);
    }
    keeps_norm = 1;
    CHECK(fabs(factor_of(0) - sqrt(2.0)) < 1e-6);
    CHECK(error_of_one(1) < 1e-4);
    memset(changes, 0, sizeof changes);
    changes[0][3] = 1e-3f;
    changes[1][3] = -1e-3f; // cancels exactly
    changes[0][700] = 1e-3f;
    CHECK(error_of_one(1) < 1e-4);
}

/* With shares of 3/4 and 1/4, noise shortens an average by the root of their squares, 10/16. */
static void noise_is_what_the_shares_make_it(void **state) {
    (void)state;
    const double step = (double)rate * (1.0 + (double)momentum);
    keeps_norm = 1;
    shares[0] = 6.0f;
    shares[1] = 2.0f;
    for (int i = 0; i < VALUES; i++) {
        changes[0][i] = learnt(0, i);
        changes[1][i] = -2.4f * learnt(0, i); // so that they nearly cancel
    }
    open_both(32, 1, 0);
    learn();
    average(1, BOTH);
    for (int i = 0; i < VALUES; i++) {
        const double d = 0.75 * (double)changes[0][i] + 0.25 * (double)changes[1][i];
        const double change = (double)initial(i) - (double)sides[0].weights[i];
        CHECK(fabs(change - step * d * sqrt(16.0 / 10.0)) < 1e-6);
    }
    close_both();
    shares[0] = shares[1] = 4.0f;
}

static void a_warmup_averages_plainly(void **state) {
    (void)state;
    fill_changes();
    keeps_norm = 1;
    n_warmup = 1;
    CHECK(error_of_one(0) < 1e-4);
    n_warmup = 0;
}

/* A lone member takes its own difference as it is. */
static void one_member_is_not_scaled(void **state) {
    (void)state;
    fill_changes();
    keeps_norm = 1;
    open_both(32, 1, 0);
    learn();
    average(1, 1);
    for (int i = 0; i < VALUES; i += 7) {
        const double change = (double)rate * (1.0 + (double)momentum) * (double)changes[0][i];
        CHECK(fabs((double)initial(i) - (double)sides[0].weights[i] - change) < 1e-6);
    }
    close_both();
}

/* In 4 bits the factor follows from what was sent, and feedback returns what rounding lost. */
static void a_rounded_average_keeps_its_length(void **state) {
    (void)state;
    double wanted = 0.0, size = 0.0;
    fill_changes();
    keeps_norm = 1;
    open_both(4, 1, 0);
    learn();
    average(1, BOTH);
    CHECK(are_equal());
    for (int i = 0; i < VALUES; i++) {
        const double d = ((double)changes[0][i] + (double)changes[1][i]) / 2.0;
        const double change = (double)rate * (1.0 + (double)momentum) * d * factor_of(i);
        const double got = (double)initial(i) - (double)sides[0].weights[i];
        wanted += change * change;
        size += got * got;
    }
    close_both();
    CHECK(fabs(sqrt(size / wanted) - 1.0) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_average_is_as_long_as_its_parts),
                                       cmocka_unit_test(a_factor_is_at_most_that_of_noise),
                                       cmocka_unit_test(noise_is_what_the_shares_make_it),
                                       cmocka_unit_test(a_warmup_averages_plainly),
                                       cmocka_unit_test(one_member_is_not_scaled),
                                       cmocka_unit_test(a_rounded_average_keeps_its_length)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
