/* muon.c - steps against a loop in double precision, momentum, default learning rates. */
#include "rig.h"

/* y [n x n] = a b, or a b^T. */
static void multiply(double *y, const double *a, const double *b, int n, int transpose) {
    for (int r = 0; r < n; r++) {
        for (int c = 0; c < n; c++) {
            y[r * n + c] = 0;
            for (int i = 0; i < n; i++)
                y[r * n + c] += a[r * n + i] * (transpose ? b[c * n + i] : b[i * n + c]);
        }
    }
}

enum {
    ROWS = 9,
    COLS = 4,
    N = ROWS * COLS
};

/* N(x) of x [ROWS x COLS], taken as the corner of a square with zeros around it. */
static void reference_orthogonalise(double *x) {
    static double square[ROWS * ROWS], a[ROWS * ROWS], b[ROWS * ROWS], next[ROWS * ROWS];
    double norm = 0;
    for (int i = 0; i < N; i++)
        norm += x[i] * x[i];
    norm = sqrt(norm) + 1e-7;
    memset(square, 0, sizeof square);
    for (int i = 0; i < N; i++)
        square[i / COLS * ROWS + i % COLS] = x[i] / norm;
    for (int iteration = 0; iteration < 8; iteration++) {
        multiply(a, square, square, ROWS, 1);
        multiply(b, a, a, ROWS, 0);
        for (int i = 0; i < ROWS * ROWS; i++)
            b[i] = 0.5 * b[i] - 1.5 * a[i];
        multiply(next, b, square, ROWS, 0);
        for (int i = 0; i < ROWS * ROWS; i++)
            square[i] = 2 * square[i] + next[i];
    }
    for (int i = 0; i < N; i++)
        x[i] = square[i / COLS * ROWS + i % COLS];
}

/* One step of the definition in muon.c, in double precision. */
static void reference_step(double *w, double *m, const float *grad, double scale, int step) {
    double u[N];
    const double warm = (step - 1) / 4.0, b = 0.5 + 0.4 * (warm < 1 ? warm : 1);
    const double rate = 0.02 / step, decay = 0.1;
    for (int i = 0; i < N; i++) {
        const double g = (double)grad[i] * scale;
        m[i] += (1 - b) * (g - m[i]);
        u[i] = g + b * (m[i] - g);
    }
    reference_orthogonalise(u);
    for (int i = 0; i < N; i++)
        w[i] = w[i] * (1 - rate * decay) - rate * sqrt((double)ROWS / COLS) * u[i];
}

static void check_role(strait_role role) {
    struct rig rig;
    rig_open(&rig, 1, (rig_shape[]){{role, ROWS, COLS}}, 1);
    strait_optim_spec spec = {
        .ops = strait_optimizer_find("muon"), .epsilon = 1e-8f, .momentum = 0.9f};
    spec.momentum_start = 0.5f;
    spec.momentum_warmup = 4;
    spec.max_norm = 0.25f;
    spec.groups[role] = (strait_optim_group){.learning_rate = 0.02f, .weight_decay = 0.1f};
    struct strait_optimizer *opt = NULL;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    double w[N], m[N] = {0};
    for (int i = 0; i < N; i++)
        w[i] = (double)rig_f32(rig.params[0].value)[i];
    for (int step = 1; step <= 10; step++) {
        rig_gradients(&rig, step);
        const float *grad = rig_f32(rig.params[0].grad);
        double squares = 0;
        for (int i = 0; i < N; i++)
            squares += (double)grad[i] * (double)grad[i];
        assert_true(sqrt(squares) > 0.25); // clipping is active
        reference_step(w, m, grad, 0.25 / sqrt(squares), step);
        rig_step(&rig, opt, step, 1.0f / (float)step);
        strait_optim_state moment;
        CHECK_OK(strait_optimizer_state(opt, 0, &moment));
        for (int i = 0; i < N; i++) {
            CHECK_NEAR((double)rig_f32(moment.tensor)[i], m[i], 1e-7);
            CHECK_NEAR((double)rig_f32(rig.params[0].value)[i], w[i], 2e-6);
        }
    }
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void steps_match_the_definition(void **state) {
    (void)state;
    static const strait_role matrices[] = {STRAIT_ROLE_MATRIX, STRAIT_ROLE_RESIDUAL_OUT,
                                           STRAIT_ROLE_BOUNDARY, STRAIT_ROLE_ENCODER_BASIS};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        check_role(matrices[i]);
}

/* From a state of zero, one step leaves m = (1 - b) g: the momentum b at that step. */
static double momentum_at(int64_t warmup, int64_t step) {
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    strait_optim_state m;
    rig_open(&rig, 1, (rig_shape[]){{STRAIT_ROLE_MATRIX, 2, 2}}, 1);
    strait_optim_spec spec = {.ops = strait_optimizer_find("muon"), .momentum = 0.95f};
    spec.momentum_start = 0.85f;
    spec.momentum_warmup = warmup;
    spec.groups[STRAIT_ROLE_MATRIX].learning_rate = 0.01f;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    rig_gradients(&rig, step);
    rig_step(&rig, opt, step, 1);
    CHECK_OK(strait_optimizer_state(opt, 0, &m));
    const double b = 1 - (double)rig_f32(m.tensor)[0] / (double)rig_f32(rig.params[0].grad)[0];
    strait_optimizer_close(&opt);
    rig_close(&rig);
    return b;
}

static void momentum_rises_linearly_over_the_warmup(void **state) {
    (void)state;
    CHECK_NEAR(momentum_at(300, 1), 0.85, 1e-6);
    CHECK_NEAR(momentum_at(300, 151), 0.9, 1e-6);
    CHECK_NEAR(momentum_at(300, 301), 0.95, 1e-6);
    CHECK_NEAR(momentum_at(300, 9000), 0.95, 1e-6);
    CHECK_NEAR(momentum_at(0, 1), 0.95, 1e-6);
}

/* Learning rates of roles that the run file leaves out. */
static void default_learning_rates_depend_on_the_role(void **state) {
    (void)state;
    const struct strait_optimizer_ops *muon = strait_optimizer_find("muon");
    CHECK_NEAR(strait_optimizer_default_learning_rate(muon, STRAIT_ROLE_EMBEDDING, 0.02, 0), 0.3,
               1e-15);
    CHECK_NEAR(strait_optimizer_default_learning_rate(muon, STRAIT_ROLE_HEAD, 0.02, 0), 0.003,
               1e-15);
    CHECK_NEAR(strait_optimizer_default_learning_rate(muon, STRAIT_ROLE_GAIN, 0.02, 0), 0.01,
               1e-15);
    CHECK_NEAR(strait_optimizer_default_learning_rate(muon, STRAIT_ROLE_VALUES, 0.02, 7), 0.7,
               1e-15);
    CHECK_NEAR(strait_optimizer_default_learning_rate(muon, STRAIT_ROLE_MATRIX, 0.02, 7), 0.02, 0);
}

static const rig_shape many[] = {{STRAIT_ROLE_MATRIX, 7, 5},   {STRAIT_ROLE_MATRIX, 5, 7},
                                 {STRAIT_ROLE_MATRIX, 7, 5},   {STRAIT_ROLE_GAIN, 1, 5},
                                 {STRAIT_ROLE_BOUNDARY, 7, 5}, {STRAIT_ROLE_RESIDUAL_OUT, 5, 7},
                                 {STRAIT_ROLE_MATRIX, 7, 5}};

enum {
    N_MANY = sizeof many / sizeof *many
};

/* The weights after three steps, with groups of so many values. */
static void train_many(int64_t group_values, float *out) {
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    strait_optim_spec spec = rig_spec("muon");
    spec.group_values = group_values;
    spec.max_norm = 0.5;
    rig_open(&rig, 2, many, N_MANY);
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, N_MANY, &opt));
    for (int step = 1; step <= 3; step++) {
        rig_gradients(&rig, step);
        rig_step(&rig, opt, step, 1);
    }
    for (int i = 0; i < N_MANY; i++) {
        const int64_t n = rig_count(rig.params[i].value);
        memcpy(out, rig_f32(rig.params[i].value), (size_t)n * sizeof *out);
        out += n;
    }
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

static void groups_change_no_bit(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 35, 70, 110, 1000}; // one to four matrices of 35 values
    float one[6 * 35 + 5], some[6 * 35 + 5];
    train_many(0, one);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        train_many(sizes[i], some);
        assert_memory_equal(some, one, sizeof one);
    }
}

static int64_t updated[4]; // rows of the matrices, in the order of their updates
static int n_updated;
static const struct strait_group_kernels *real_groups;

static strait_err log_momentum(struct strait_stream *s, strait_tensor u, strait_tensor m,
                               strait_tensor grad, strait_tensor scale, float b) {
    updated[n_updated++] = m.rows;
    return real_groups->momentum(s, u, m, grad, scale, b);
}

/* While a device computes them, the host queues the others. */
static void large_matrices_come_first(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    rig_open(&rig, 1,
             (rig_shape[]){{STRAIT_ROLE_BOUNDARY, 3, 4},
                           {STRAIT_ROLE_MATRIX, 16, 8},
                           {STRAIT_ROLE_BOUNDARY, 5, 4},
                           {STRAIT_ROLE_MATRIX, 12, 8}},
             4);
    strait_optim_spec spec = {.ops = strait_optimizer_find("muon"), .momentum = 0.9f};
    spec.groups[STRAIT_ROLE_MATRIX].learning_rate = 0.01f;
    spec.groups[STRAIT_ROLE_BOUNDARY].learning_rate = 0.01f;
    const struct strait_kernels *real = rig.backend->kernels;
    struct strait_group_kernels groups = *real->groups;
    struct strait_kernels logged = *real;
    real_groups = real->groups;
    groups.momentum = log_momentum;
    logged.groups = &groups;
    rig.backend->kernels = &logged;
    n_updated = 0;
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 4, &opt));
    rig_gradients(&rig, 1);
    rig_step(&rig, opt, 1, 1);
    rig.backend->kernels = real;
    assert_int_equal(n_updated, 4);
    assert_memory_equal(updated, ((int64_t[]){16, 12, 5, 3}), sizeof updated);
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

/* The caller does not wait for the norm, because a step checks it. */
static void a_nonfinite_norm_changes_nothing(void **state) {
    (void)state;
    struct rig rig;
    struct strait_optimizer *opt = NULL;
    strait_optim_state m;
    float before[35], moment[35];
    strait_optim_spec spec = rig_spec("muon");
    rig_open(&rig, 1, many, 1);
    CHECK_OK(strait_optimizer_open(&spec, rig.backend, rig.params, 1, &opt));
    assert_true(strait_optimizer_checks_norm(opt));
    rig_gradients(&rig, 1);
    rig_step(&rig, opt, 1, 1);
    CHECK_OK(strait_optimizer_state(opt, 0, &m));
    memcpy(before, rig_f32(rig.params[0].value), sizeof before);
    memcpy(moment, rig_f32(m.tensor), sizeof moment);
    rig_gradients(&rig, 2);
    rig_f32(rig.params[0].grad)[3] = INFINITY;
    rig_step(&rig, opt, 2, 1);
    assert_memory_equal(rig_f32(rig.params[0].value), before, sizeof before);
    assert_memory_equal(rig_f32(m.tensor), moment, sizeof moment);
    rig_gradients(&rig, 3);
    rig_step(&rig, opt, 3, 1);
    for (int i = 0; i < 35; i++)
        assert_true(isfinite(rig_f32(rig.params[0].value)[i]));
    strait_optimizer_close(&opt);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_match_the_definition),
        cmocka_unit_test(momentum_rises_linearly_over_the_warmup),
        cmocka_unit_test(default_learning_rates_depend_on_the_role),
        cmocka_unit_test(groups_change_no_bit),
        cmocka_unit_test(large_matrices_come_first),
        cmocka_unit_test(a_nonfinite_norm_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
