/* The outer step's formula, where it differs from the usual one: shares of different sizes, after a
 * warmup, without error feedback, after a restart; and what is planned for it. */
#include "outer_rig.h"
#include "stage/outer/outer_state.h"

/* The largest difference of a weight of replica 0 from `expected`. */
static double error_from(double (*expected)(int i)) {
    double error = 0.0;
    for (int i = 0; i < VALUES; i++)
        error = fmax(error, fabs((double)sides[0].weights[i] - expected(i)));
    return error;
}

static double average_of(int i, double first_share) {
    return first_share * (double)learnt(0, i) + (1.0 - first_share) * (double)learnt(1, i);
}

static void train_and_average(int64_t step) {
    train(0);
    train(1);
    average(step, BOTH);
    CHECK(are_equal());
}

static double first_step = 0.0; // of the first average, as a multiple of it

/* One step without earlier momentum, from where the first left the weights. */
static double step_anew(int i) {
    const double rest = (double)rate * (1.0 + (double)momentum);
    return (double)initial(i) - (first_step + rest) * average_of(i, 0.5);
}

static double step_by_shares(int i) {
    return (double)initial(i) - (double)rate * (1.0 + (double)momentum) * average_of(i, 0.75);
}

static void a_member_counts_by_its_share(void **state) {
    (void)state;
    shares[0] = 6.0f;
    shares[1] = 2.0f;
    open_both(32, 1, 0);
    train_and_average(1);
    CHECK(error_from(step_by_shares) < 1e-6);
    close_both();
    shares[0] = shares[1] = 4.0f;
}

/* A momentum of differences of single steps would not fit those of intervals. */
static void a_warmup_leaves_no_momentum(void **state) {
    (void)state;
    n_warmup = 1;
    open_both(32, 1, 0);
    train_and_average(1);
    train_and_average(2);
    first_step = 1.0;
    CHECK(error_from(step_anew) < 1e-6);
    close_both();
    n_warmup = 0;
}

static void a_restart_leaves_no_momentum(void **state) {
    (void)state;
    open_both(32, 1, 0);
    train_and_average(1);
    for (int r = 0; r < 2; r++)
        CHECK_OK(strait_outer_restart(sides[r].outer, &sides[r].stream));
    train_and_average(1);
    first_step = (double)rate * (1.0 + (double)momentum);
    CHECK(error_from(step_anew) < 1e-6);
    close_both();
}

static double largest(strait_outer_tensor kind) {
    double most = 0.0;
    for (int weight = 0; weight < 3; weight += 2) { // the second never learns
        const strait_tensor t = strait_outer_get(sides[0].outer, kind, weight, 1);
        assert_non_null(t.data);
        for (int64_t i = 0; i < t.rows * t.cols; i++)
            most = fmax(most, fabs((double)((const float *)t.data)[i]));
    }
    return most;
}

/* Without feedback what rounding lost is not sent later, neither of a part nor of a result. */
static void keeps_what_rounding_lost_for_feedback_alone(void **state) {
    (void)state;
    for (drops_residual = 0; drops_residual < 2; drops_residual++) {
        open_both(4, 1, 0);
        train_and_average(1);
        CHECK((largest(STRAIT_OUTER_RESIDUAL) > 0.0) == !drops_residual);
        CHECK((largest(STRAIT_OUTER_RESULT_RESIDUAL) > 0.0) == !drops_residual);
        /* One that continues from the average has lost nothing yet. */
        CHECK_OK(strait_outer_catch_up(sides[0].outer, &sides[0].stream));
        CHECK(largest(STRAIT_OUTER_RESIDUAL) == 0.0);
        CHECK(largest(STRAIT_OUTER_RESULT_RESIDUAL) == 0.0);
        close_both();
    }
    drops_residual = 0;
}

/* Of 4 replicas each sends 3 others a quarter of its values as parts, and owns as much; of the
 * gains of attention no part is averaged more often. */
static void plans_bytes_from_the_values_that_are_averaged(void **state) {
    (void)state;
    enum {
        MATRIX = 4000,
        GAIN = 40,
        REST = 1000
    };
    strait_param params[3] = {{.name = "blocks.0.attention.q"},
                              {.name = "blocks.0.attention.gain", .role = STRAIT_ROLE_GAIN},
                              {.name = "blocks.0.mlp.up"}};
    params[0].value = (strait_tensor){NULL, STRAIT_F32, MATRIX / 40, 40};
    params[1].value = (strait_tensor){NULL, STRAIT_F32, 1, GAIN};
    params[2].value = (strait_tensor){NULL, STRAIT_F32, REST, 1};
    const strait_outer_spec spec = {
        .n_replicas = 4,
        .params = {.schedule = {.fragments = 2, .attention_every = 5}, .bits = 32},
        .weights = params,
        .n_weights = 3};
    const strait_outer_bytes_sent sent = strait_outer_sent_bytes(&spec);
    CHECK_NEAR(sent.attention, 2.0 * 3.0 / 4.0 * MATRIX * sizeof(float), 1e-6);
    CHECK_NEAR(sent.fragment, 2.0 * 3.0 / 4.0 * (GAIN + REST) * sizeof(float) / 2.0, 1e-6);
    /* Anchor, momentum, what was sent, and the residual. */
    const size_t row = (MATRIX + GAIN + REST) * sizeof(float);
    CHECK(strait_outer_bytes(&spec) == 4 * row);
    strait_outer_spec alone = spec;
    alone.n_replicas = 1;
    CHECK(strait_outer_bytes(&alone) == 3 * row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_counts_by_its_share),
        cmocka_unit_test(a_warmup_leaves_no_momentum),
        cmocka_unit_test(a_restart_leaves_no_momentum),
        cmocka_unit_test(keeps_what_rounding_lost_for_feedback_alone),
        cmocka_unit_test(plans_bytes_from_the_values_that_are_averaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
