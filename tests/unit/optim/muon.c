/* muon.c - orthogonalised momentum against known singular vectors and a loop in double precision.
 */
#include "optim/muon.h"

#include "base/alloc.h"
#include "rig.h"

#include <stdlib.h>

enum {
    SIDE = 64, // of the largest matrix here
    FULL = SIDE * SIDE
};

/* Orthonormal rows [k x n], k <= n, by Gram-Schmidt twice. */
static void make_frame(double *rows, int k, int n, uint64_t seed) {
    float draw[SIDE];
    for (int r = 0; r < k; r++) {
        strait_rng_normals((strait_rng){seed, (uint64_t)r}, 0, draw, (size_t)n);
        double *row = rows + (ptrdiff_t)r * n;
        for (int i = 0; i < n; i++)
            row[i] = (double)draw[i];
        for (int pass = 0; pass < 2 * r; pass++) {
            const double *other = rows + (ptrdiff_t)(pass % r) * n;
            double dot = 0;
            for (int i = 0; i < n; i++)
                dot += row[i] * other[i];
            for (int i = 0; i < n; i++)
                row[i] -= dot * other[i];
        }
        double squares = 0;
        for (int i = 0; i < n; i++)
            squares += row[i] * row[i];
        for (int i = 0; i < n; i++)
            row[i] /= sqrt(squares);
    }
}

/* Where eight iterations take a singular value. */
static double iterated(double s) {
    for (int i = 0; i < 8; i++)
        s = 2 * s - 1.5 * pow(s, 3) + 0.5 * pow(s, 5);
    return s;
}

/* out [rows x cols] = sum over i of values[i] left[i]^T right[i]. */
static void compose(float *out, const double *left, const double *right, const double *values,
                    int rows, int cols) {
    const int k = rows < cols ? rows : cols;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            double sum = 0;
            for (int i = 0; i < k; i++)
                sum += values[i] * left[i * rows + r] * right[i * cols + c];
            out[r * cols + c] = (float)sum;
        }
    }
}

static void open_muon(struct rig *rig, struct strait_muon *muon, struct strait_slab *slab) {
    rig_open(rig, 1, (rig_shape[]){{STRAIT_ROLE_MATRIX, SIDE, SIDE}}, 1);
    strait_muon_reserve(muon, SIDE, SIDE);
    CHECK_OK(strait_muon_plan(muon, slab));
    CHECK_OK(strait_slab_commit(slab, rig->backend));
}

/* A matrix with k known singular values, the last `n_zero` of them 0. */
static void check_singular(int rows, int cols, int n_zero, double smallest) {
    static double left[FULL], right[FULL], values[SIDE];
    static float x[FULL], expected[FULL];
    struct rig rig;
    struct strait_muon muon = {0};
    struct strait_slab slab = {0};
    open_muon(&rig, &muon, &slab);
    const int k = rows < cols ? rows : cols;
    double squares = 0;
    for (int i = 0; i < k; i++) {
        values[i] = i >= k - n_zero ? 0 : 3 - (3 - smallest) * i / k;
        squares += values[i] * values[i];
    }
    make_frame(left, k, rows, 1);
    make_frame(right, k, cols, 2);
    compose(x, left, right, values, rows, cols);
    for (int i = 0; i < k; i++) {
        values[i] = iterated(values[i] / (sqrt(squares) + 1e-7));
        if (i < k - n_zero) assert_true(values[i] > 0.9 && values[i] < 1.01);
    }
    compose(expected, left, right, values, rows, cols);
    CHECK_OK(
        strait_muon_orthogonalise(&muon, &rig.stream, (strait_tensor){x, STRAIT_F32, rows, cols}));
    for (int i = 0; i < rows * cols; i++)
        CHECK_NEAR((double)x[i], (double)expected[i], 2e-5);
    strait_slab_fini(&slab);
    rig_close(&rig);
}

static void singular_values_go_to_one(void **state) {
    (void)state;
    check_singular(5, 9, 0, 0.5);
    check_singular(9, 5, 0, 0.5);
    check_singular(17, 17, 0, 1);
    check_singular(64, 33, 0, 1.5);
    check_singular(2, 64, 0, 0.1);
    check_singular(1, 7, 0, 1);
    check_singular(7, 1, 0, 1);
}

static void missing_rank_stays_missing(void **state) {
    (void)state;
    check_singular(12, 7, 3, 0.5);
    check_singular(7, 12, 6, 0.5);
}

static void zero_stays_zero(void **state) {
    (void)state;
    struct rig rig;
    struct strait_muon muon = {0};
    struct strait_slab slab = {0};
    float x[12] = {0};
    open_muon(&rig, &muon, &slab);
    CHECK_OK(strait_muon_orthogonalise(&muon, &rig.stream, (strait_tensor){x, STRAIT_F32, 3, 4}));
    for (int i = 0; i < 12; i++)
        assert_true(x[i] == 0);
    strait_slab_fini(&slab);
    rig_close(&rig);
}

static void momentum_warms_up(void **state) {
    (void)state;
    CHECK_NEAR((double)strait_muon_momentum(0.85f, 0.95f, 300, 1), 0.85, 1e-7);
    CHECK_NEAR((double)strait_muon_momentum(0.85f, 0.95f, 300, 151), 0.9, 1e-7);
    CHECK_NEAR((double)strait_muon_momentum(0.85f, 0.95f, 300, 301), 0.95, 1e-7);
    CHECK_NEAR((double)strait_muon_momentum(0.85f, 0.95f, 300, 9000), 0.95, 1e-7);
    CHECK_NEAR((double)strait_muon_momentum(0.85f, 0.95f, 0, 1), 0.95, 1e-7);
}

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
static void orthogonalise_slowly(double *x) {
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

/* The definition in muon.h, word for word, one step. */
static void step_slowly(double *w, double *m, const float *grad, double scale, int step) {
    double u[N];
    const double warm = (step - 1) / 4.0, b = 0.5 + 0.4 * (warm < 1 ? warm : 1);
    const double rate = 0.02 / step, decay = 0.1;
    for (int i = 0; i < N; i++) {
        const double g = (double)grad[i] * scale;
        m[i] += (1 - b) * (g - m[i]);
        u[i] = g + b * (m[i] - g);
    }
    orthogonalise_slowly(u);
    for (int i = 0; i < N; i++)
        w[i] = w[i] * (1 - rate * decay) - rate * sqrt((double)ROWS / COLS) * u[i];
}

static void follow_the_definition(strait_role role) {
    struct rig rig;
    rig_open(&rig, 1, (rig_shape[]){{role, ROWS, COLS}}, 1);
    strait_optim_spec spec = {.kind = STRAIT_OPTIM_MUON, .epsilon = 1e-8f, .momentum = 0.9f};
    spec.momentum_start = 0.5f;
    spec.momentum_warmup = 4;
    spec.max_norm = 0.25f;
    spec.groups[role] = (strait_optim_group){.rate = 0.02f, .decay = 0.1f};
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
        assert_true(sqrt(squares) > 0.25); // so that clipping is at work
        step_slowly(w, m, grad, 0.25 / sqrt(squares), step);
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

static void steps_follow_the_definition(void **state) {
    (void)state;
    static const strait_role matrices[] = {STRAIT_ROLE_MATRIX, STRAIT_ROLE_RESIDUAL_OUT,
                                           STRAIT_ROLE_BOUNDARY, STRAIT_ROLE_ENCODER_BASIS};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
        follow_the_definition(matrices[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(singular_values_go_to_one),
        cmocka_unit_test(missing_rank_stays_missing),
        cmocka_unit_test(zero_stays_zero),
        cmocka_unit_test(momentum_warms_up),
        cmocka_unit_test(steps_follow_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
