/* The vector exponential of softmax, silu and loss, over the whole range of floats. */
#define STRAIT_ISA test // only the inline parts of simd.h are used
#include "backend/cpu/simd.h"
#include "check.h"

static double exp_of(float x) {
    return (double)vec_exp(splat(x))[0];
}

static void is_within_one_unit_in_the_last_place(void **state) {
    (void)state;
    for (int i = -8730; i < 8830; i++) {
        const float x = (float)i * 0.01f;
        const double want = exp((double)x);
        CHECK_NEAR(exp_of(x), want, 1.2e-7 * want); // one unit in the last place of a float
        if (x <= 0) CHECK_NEAR((double)exp_down(splat(x))[0], want, 1.2e-7 * want);
    }
}

static void is_exact_at_special_values(void **state) {
    (void)state;
    CHECK_NEAR(exp_of(0), 1, 0);
    CHECK_NEAR(exp_of(-0.0f), 1, 0);
    CHECK_NEAR(exp_of(-INFINITY), 0, 0);
    CHECK_NEAR(exp_of(-1e30f), 0, 0);
    CHECK_NEAR(exp_of(-88), 0, 0);
    CHECK_NEAR((double)exp_down(splat(-INFINITY))[0], 0, 0);
    CHECK(isinf(exp_of(INFINITY)) && exp_of(INFINITY) > 0);
    CHECK(isinf(exp_of(89)));
    CHECK(isnan(exp_of(NAN)));
    CHECK(isnan(exp_down(splat(NAN))[0]));
}

static void loads_and_stores_partial_vectors(void **state) {
    (void)state;
    float from[LANES], to[LANES + 1];
    for (int i = 0; i < LANES; i++)
        from[i] = (float)(i + 1);
    for (int n = 0; n <= LANES; n++) {
        for (int i = 0; i <= LANES; i++)
            to[i] = -1;
        const vec v = load_some(from, n);
        store_some(to, v, n);
        for (int i = 0; i <= LANES; i++)
            CHECK_NEAR(to[i], i < n ? i + 1 : -1, 0);
        CHECK_NEAR(sum_lanes(v), 0.5 * n * (n + 1), 0);
        CHECK_NEAR(max_lanes(lanes_below(v, n, 0.5f)), n == 0 ? 0.5 : n, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_within_one_unit_in_the_last_place),
        cmocka_unit_test(is_exact_at_special_values),
        cmocka_unit_test(loads_and_stores_partial_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
