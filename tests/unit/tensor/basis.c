/* Orthonormal columns: orthonormal, reproducible, and rejected where columns are dependent. */
#include "tensor/basis.h"

#include "check.h"

#include <math.h>

enum {
    D = 40,
    K = 12
};

static double dot(const float *q, int a, int b) {
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)q[i * K + a] * (double)q[i * K + b];
    return sum;
}

static void draws_orthonormal_columns(void **state) {
    (void)state;
    float q[D * K], again[D * K], other[D * K];
    CHECK_OK(strait_basis_draw((strait_rng){1, 2}, D, K, q));
    CHECK_OK(strait_basis_draw((strait_rng){1, 2}, D, K, again));
    CHECK_OK(strait_basis_draw((strait_rng){1, 3}, D, K, other));
    assert_memory_equal(q, again, sizeof q);
    assert_memory_not_equal(q, other, sizeof q);
    for (int a = 0; a < K; a++)
        for (int b = 0; b < K; b++)
            CHECK_NEAR(dot(q, a, b), a == b, 1e-7);
}

static void separates_nearly_parallel_columns(void **state) {
    (void)state;
    double q[D * 2], first[D], sum = 0, size = 0;
    for (int i = 0; i < D; i++) {
        first[i] = q[i * 2] = 1 + i % 5;
        q[i * 2 + 1] = q[i * 2] + (i == 3 ? 1e-7 : 0);
    }
    CHECK_OK(strait_basis_orthonormalise(q, D, 2));
    for (int i = 0; i < D; i++) {
        sum += q[i * 2] * q[i * 2 + 1];
        size += first[i] * first[i];
    }
    CHECK_NEAR(sum, 0, 1e-12);
    for (int i = 0; i < D; i++)
        CHECK_NEAR(q[i * 2], first[i] / sqrt(size), 1e-12);
}

static void rejects_dependent_columns(void **state) {
    (void)state;
    double q[] = {1, 2, 3, 1, 0, 1, 0, 0, 0}, nan[] = {1, NAN};
    CHECK_FAILS(strait_basis_orthonormalise(q, 3, 3), STRAIT_EDATA,
                "column 2 of 3 depends on earlier columns");
    CHECK_FAILS(strait_basis_orthonormalise(nan, 1, 2), STRAIT_EDATA, "column 1 of 2");
}

/* Two columns turned out of the span by known angles; the others stay. */
static void measures_principal_angles(void **state) {
    (void)state;
    float all[D * (K + 2)], a[D * K], b[D * K];
    const double turns[K] = {[2] = 0.5, [7] = 1e-5};
    double largest, mean;
    CHECK_OK(strait_basis_draw((strait_rng){5, 1}, D, K + 2, all));
    for (int i = 0; i < D * K; i++) {
        const float *row = all + (ptrdiff_t)(i / K) * (K + 2);
        const int c = i % K;
        a[i] = row[c];
        b[i] = (float)(cos(turns[c]) * (double)row[c] +
                       sin(turns[c]) * (double)row[c == 2 ? K : K + 1]);
    }
    CHECK_OK(strait_basis_angles(a, b, D, K, &largest, &mean));
    CHECK_NEAR(largest, 0.5, 1e-5);
    CHECK_NEAR(sin(mean), sin(0.5) / sqrt(K), 1e-5);
    CHECK_OK(strait_basis_angles(a, a, D, K, &largest, &mean));
    CHECK(largest < 1e-6 && mean < 1e-6);
    for (int i = 0; i < D; i++) // only the small turn is left: too small to see in its cosine
        b[i * K + 2] = a[i * K + 2];
    CHECK_OK(strait_basis_angles(a, b, D, K, &largest, &mean));
    CHECK_NEAR(largest, 1e-5, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_orthonormal_columns),
        cmocka_unit_test(measures_principal_angles),
        cmocka_unit_test(separates_nearly_parallel_columns),
        cmocka_unit_test(rejects_dependent_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
