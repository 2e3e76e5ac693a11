/* newton_schulz.c - orthogonalisation of matrices with known singular vectors. */
#include "optim/newton_schulz.h"

#include "rig.h"

enum {
    SIDE = 64, // of the largest matrix here
    FULL = SIDE * SIDE
};

/* Orthonormal rows [k x n], k <= n, by Gram-Schmidt twice. */
static void make_orthonormal(double *rows, int k, int n, uint64_t seed) {
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

/* A singular value after eight iterations. */
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

static void open_scratch(struct rig *rig, struct strait_newton_schulz *ns,
                         struct strait_slab *slab) {
    rig_open(rig, 1, (rig_shape[]){{STRAIT_ROLE_MATRIX, SIDE, SIDE}}, 1);
    strait_newton_schulz_reserve(ns, SIDE, SIDE, 1);
    CHECK_OK(strait_newton_schulz_plan(ns, slab));
    CHECK_OK(strait_slab_commit(slab, rig->backend));
}

/* A matrix with k known singular values, the last `n_zero` of them 0. */
static void check_singular(int rows, int cols, int n_zero, double smallest) {
    static double left[FULL], right[FULL], values[SIDE];
    static float x[FULL], expected[FULL];
    struct rig rig;
    struct strait_newton_schulz ns = {0};
    struct strait_slab slab = {0};
    open_scratch(&rig, &ns, &slab);
    const int k = rows < cols ? rows : cols;
    double squares = 0;
    for (int i = 0; i < k; i++) {
        values[i] = i >= k - n_zero ? 0 : 3 - (3 - smallest) * i / k;
        squares += values[i] * values[i];
    }
    make_orthonormal(left, k, rows, 1);
    make_orthonormal(right, k, cols, 2);
    compose(x, left, right, values, rows, cols);
    for (int i = 0; i < k; i++) {
        values[i] = iterated(values[i] / (sqrt(squares) + 1e-7));
        if (i < k - n_zero) assert_true(values[i] > 0.9 && values[i] < 1.01);
    }
    compose(expected, left, right, values, rows, cols);
    CHECK_OK(strait_newton_schulz(&ns, &rig.stream, (strait_tensor){x, STRAIT_F32, rows, cols}, 1));
    for (int i = 0; i < rows * cols; i++)
        CHECK_NEAR((double)x[i], (double)expected[i], 2e-5);
    strait_slab_fini(&slab);
    rig_close(&rig);
}

static void singular_values_converge_to_one(void **state) {
    (void)state;
    check_singular(5, 9, 0, 0.5);
    check_singular(9, 5, 0, 0.5);
    check_singular(17, 17, 0, 1);
    check_singular(64, 33, 0, 1.5);
    check_singular(2, 64, 0, 0.1);
    check_singular(1, 7, 0, 1);
    check_singular(7, 1, 0, 1);
}

static void zero_singular_values_stay_zero(void **state) {
    (void)state;
    check_singular(12, 7, 3, 0.5);
    check_singular(7, 12, 6, 0.5);
}

static void zero_matrix_stays_zero(void **state) {
    (void)state;
    struct rig rig;
    struct strait_newton_schulz ns = {0};
    struct strait_slab slab = {0};
    float x[12] = {0};
    open_scratch(&rig, &ns, &slab);
    CHECK_OK(strait_newton_schulz(&ns, &rig.stream, (strait_tensor){x, STRAIT_F32, 3, 4}, 1));
    for (int i = 0; i < 12; i++)
        assert_true(x[i] == 0);
    strait_slab_fini(&slab);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(singular_values_converge_to_one),
        cmocka_unit_test(zero_singular_values_stay_zero),
        cmocka_unit_test(zero_matrix_stays_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
