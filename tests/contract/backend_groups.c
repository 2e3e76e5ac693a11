/* Updates of several matrices of one shape, compared with the reference; and the bits of one matrix
 * alone and among others. */
#include "rig.h"

/* inner: matrices; variant: bit 0: the norm is non-finite, bit 1: with a bf16 copy */
static void run_elementwise(struct rig *rig, shape s) {
    const int n = (int)s.inner;
    const float scales[] = {0.3f, s.variant & 1 ? NAN : 2.0f};
    const strait_tensor scale = rig_values(rig, 2, 1, scales);
    const strait_tensor u = rig_output(rig, n * s.rows, s.cols);
    const strait_tensor m = rig_input(rig, s.rows, s.cols, 1),
                        g = rig_input(rig, s.rows, s.cols, 2);
    const strait_tensor w = rig_input(rig, s.rows, s.cols, 3), totals = rig_output(rig, n, 1);
    strait_tensor copy = rig_output(rig, s.rows, s.cols), back = rig_zeros(rig, s.rows, s.cols);
    strait_tensor each[16];
    const struct strait_group_kernels *k = rig->k->groups;
    copy.dtype = STRAIT_BF16;
    for (int i = 0; i < n; i++) {
        each[i] = strait_tensor_rows(u, i * s.rows, s.rows);
        CHECK_OK(k->momentum(&rig->stream, each[i], m, g, scale, 0.8f));
        rig_keep(rig, m);
    }
    rig_keep(rig, u);
    CHECK_OK(rig->k->sum_squares_each(&rig->stream, totals, each, n));
    CHECK_OK(k->normalise(&rig->stream, u, totals, 1e-3f));
    rig_keep(rig, u);
    CHECK_OK(rig->k->cast(&rig->stream, copy, w));
    CHECK_OK(k->apply(&rig->stream, w, s.variant & 2 ? copy : (strait_tensor){0}, each[n - 1],
                      scale, 0.9f, 0.02f));
    rig_keep(rig, w);
    CHECK_OK(rig->k->cast(&rig->stream, back, copy));
    rig_keep(rig, back);
}

static void matches_reference_elementwise(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {3, 7, 2}, {17, 64, 5}, {129, 33, 3}, {64, 256, 4}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int variant = 0; variant < 4; variant++)
            check_one_of_many(run_elementwise,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variant,
                                      .is_f32_only = 1},
                              5e-3); // of the rounded copy; see the next test for the rest
}

static void matches_reference_closely_without_a_copy(void **state) {
    (void)state;
    check_case(run_elementwise,
               (shape){.rows = 40, .cols = 36, .inner = 3, .variant = 0, .is_f32_only = 1}, 2e-6);
}

/* Matrices per call. */
enum {
    N_MATRICES = 5
};

/* variant: bits 0 and 1 transpose; bits 2 and 3: 0 beta is 0, 1 c is y, 2 c is another tensor */
static void run_multiply(struct rig *rig, shape s) {
    const int ta = s.variant & 1, tb = s.variant >> 1 & 1, adds = s.variant >> 2, n = N_MATRICES;
    const strait_tensor a = rig_input(rig, n * (ta ? s.inner : s.rows), ta ? s.rows : s.inner, 1);
    const strait_tensor b = rig_input(rig, n * (tb ? s.cols : s.inner), tb ? s.inner : s.cols, 2);
    const strait_tensor y = adds == 1 ? rig_input(rig, n * s.rows, s.cols, 3)
                                      : rig_output(rig, n * s.rows, s.cols);
    const strait_tensor c = adds == 2   ? rig_input(rig, n * s.rows, s.cols, 3)
                            : adds == 1 ? y
                                        : (strait_tensor){0};
    const strait_matmul_params params = {
        .transpose_a = ta, .transpose_b = tb, .alpha = 0.7f, .beta = adds ? -1.5f : 0.0f};
    CHECK_OK(rig->k->groups->multiply(&rig->stream, y, c, a, b, n, params));
    rig_keep(rig, y);
}

static void matches_reference_multiply(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 5},     {64, 64, 64},
                                       {33, 96, 40}, {128, 72, 17}, {96, 96, 256}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int variant = 0; variant < 12; variant++)
            check_one_of_many(run_multiply,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variant,
                                      .is_f32_only = 1},
                              1e-5);
}

/* A matrix has the same bits alone and as one of any number, whatever the device. */
static void check_counts(struct rig *rig, int64_t side, int64_t inner) {
    enum {
        MOST = 9
    };
    const int64_t n_values = MOST * side * side;
    float *all = rig_floats(n_values), *some = rig_floats(n_values);
    const strait_tensor a = rig_input(rig, MOST * side, inner, 1);
    const strait_tensor y = rig_output(rig, MOST * side, side);
    const strait_matmul_params params = {.transpose_b = 1, .alpha = 1};
    CHECK_OK(rig->k->groups->multiply(&rig->stream, y, (strait_tensor){0}, a, a, MOST, params));
    rig_read(rig, y, all);
    for (int n = 1; n < MOST; n++) {
        const strait_tensor few = strait_tensor_rows(y, 0, n * side);
        const strait_tensor from = strait_tensor_rows(a, 0, n * side);
        CHECK_OK(rig->k->fill(&rig->stream, y, 0));
        CHECK_OK(
            rig->k->groups->multiply(&rig->stream, few, (strait_tensor){0}, from, from, n, params));
        rig_read(rig, few, some);
        assert_memory_equal(some, all, (size_t)(n * side * side) * sizeof *some);
    }
    free(all);
    free(some);
}

static void bits_do_not_depend_on_the_number_of_matrices(void **state) {
    (void)state;
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        for (int is_half = 0; is_half < 2; is_half++) {
            struct rig rig;
            rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name,
                                                 .precision = is_half ? STRAIT_BF16 : STRAIT_F32});
            check_counts(&rig, 24, 40);
            rig_clear(&rig);
            check_counts(&rig, 256, 512);
            rig_close(&rig);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_elementwise),
        cmocka_unit_test(matches_reference_closely_without_a_copy),
        cmocka_unit_test(matches_reference_multiply),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_matrices),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
