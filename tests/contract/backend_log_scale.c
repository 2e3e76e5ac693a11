/* Log-scale payloads: compared with the reference loops, and with the formulas of docs/codecs.md
 * written out once more. */
#include "rig.h"

#include <math.h>

static int64_t log_scale_bytes(int64_t rows, int64_t cols) {
    return 4 + rows * ((4 * cols + 4 + 7) / 8);
}

/* Rows of very different magnitude, some of them zeros. */
static strait_tensor make_rows(struct rig *rig, int64_t rows, int64_t cols, int has_bad_values) {
    const strait_tensor x = rig_input(rig, rows, cols, 1);
    float *values = rig_floats(rows * cols);
    rig_read(rig, x, values);
    for (int64_t i = 0; i < rows * cols; i++) {
        values[i] *= i / cols % 6 == 5 ? 0.0f : exp2f(-0.9f * (float)(i / cols % 13));
        if (has_bad_values && i % 11 == 3) values[i] = i % 2 ? NAN : 1e30f;
    }
    rig_write(rig, x, values);
    free(values);
    return x;
}

/* variant: bit 0: stochastic, bit 1: with bad values */
static void run_log_scale(struct rig *rig, shape s) {
    const strait_pack_params params = {.is_stochastic = s.variant & 1, .seed = 3, .stream = 77};
    const strait_tensor x = make_rows(rig, s.rows, s.cols, s.variant & 2);
    const strait_tensor packed = rig_bytes(rig, log_scale_bytes(s.rows, s.cols));
    const strait_tensor stats = rig_zeros(rig, s.rows, 3), y = rig_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->log_scale->pack(&rig->stream, packed, stats, x, params));
    rig_keep_bytes(rig, packed);
    rig_keep(rig, stats);
    CHECK_OK(rig->k->log_scale->restore(&rig->stream, y, stats, packed, params));
    rig_keep(rig, y);
    rig_keep(rig, stats);
}

/* Columns that are not packed change no byte, and restoring does not write them. */
static void run_padded(struct rig *rig, shape s) {
    const strait_tensor narrow = make_rows(rig, s.rows, s.cols, s.variant & 2);
    const strait_tensor x = rig_input(rig, s.rows, s.cols + 3, 2);
    const strait_tensor y = rig_output(rig, s.rows, s.cols + 3);
    CHECK_OK(rig->k->regroup_cols(
        &rig->stream, x, narrow,
        (strait_regroup_params){
            .n_groups = 1, .to_cols = s.cols, .from_cols = s.cols, .alpha = 1}));
    const strait_pack_params params = {
        .is_stochastic = s.variant & 1, .seed = 3, .stream = 77, .cols = s.cols};
    const int64_t bytes = log_scale_bytes(s.rows, s.cols);
    const strait_tensor packed = rig_bytes(rig, bytes), same = rig_bytes(rig, bytes);
    const strait_tensor stats = rig_zeros(rig, s.rows, 3);
    CHECK_OK(rig->k->log_scale->pack(&rig->stream, packed, stats, x, params));
    CHECK_OK(rig->k->log_scale->pack(&rig->stream, same, (strait_tensor){0}, narrow, params));
    CHECK_OK(rig->k->log_scale->restore(&rig->stream, y, stats, packed, params));
    const strait_tensor side = rig_act_output(rig, y.rows, y.cols);
    CHECK_OK(rig->k->log_scale->restore(&rig->stream, side, (strait_tensor){0}, packed, params));
    rig_keep_bytes(rig, packed);
    rig_keep_bytes(rig, same);
    for (int64_t i = 0; i < bytes; i++)
        CHECK(rig->kept[i] == rig->kept[bytes + i]);
    rig_keep(rig, y);
    rig_keep(rig, side);
    rig_keep(rig, stats);
}

static void ignores_columns_that_are_not_packed(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        check_one_of_many(run_padded, (shape){.rows = 9, .cols = 31, .variant = variant}, 1e-5);
        check_one_of_many(run_padded, (shape){.rows = 130, .cols = 5, .variant = variant}, 1e-5);
    }
}

static void matches_reference_bytes(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 9, 130}, cols[] = {1, 5, 31, 32, 63, 64, 133, 300};
    for (int variant = 0; variant < 4; variant++)
        for (size_t r = 0; r < COUNT(rows); r++)
            for (size_t c = 0; c < COUNT(cols); c++)
                check_one_of_many(run_log_scale,
                                  (shape){.rows = rows[r], .cols = cols[c], .variant = variant},
                                  1e-5);
}

/* Random bytes restore to finite values, and an invalid top scale is counted. variant: which bytes
 */
static void run_garbage(struct rig *rig, shape s) {
    const int64_t n = log_scale_bytes(s.rows, s.cols);
    const strait_tensor packed = rig_bytes(rig, n);
    const strait_tensor stats = rig_zeros(rig, s.rows, 3), y = rig_output(rig, s.rows, s.cols);
    unsigned char *noise = malloc((size_t)n + 4);
    assert_non_null(noise);
    for (int64_t i = 0; i < n; i++)
        noise[i] = (unsigned char)(s.variant == 0 ? 255 : i * 7919 * s.variant >> 3);
    rig_write(rig, packed, (const float *)(const void *)noise);
    free(noise);
    CHECK_OK(rig->k->log_scale->restore(&rig->stream, y, stats, packed,
                                        (strait_pack_params){.is_stochastic = s.variant & 1}));
    rig_keep(rig, y);
    for (size_t i = 0; i < rig->n_kept; i++)
        CHECK(isfinite(rig->kept[i]));
    rig_keep(rig, stats);
}

static void restores_finite_values_from_any_bytes(void **state) {
    (void)state;
    for (int variant = 0; variant < 20; variant++)
        check_one_of_many(run_garbage, (shape){.rows = 5, .cols = 31, .variant = variant}, 1e-5);
}

/* The format by the formulas of docs/codecs.md, with logarithms; r is a value's random number. */
static double coded(double u, double a, double most, const double *r) {
    const double top = exp2(ceil(2 * log2(most)) / 2), step = 2 * log2(a / top);
    const double e = fmin(fmax(r != NULL ? ceil(step) : rint(step), -15), 0);
    const double s = top * exp2(e / 2);
    if (r == NULL) return (fmin(fmax(floor(8 * u / s), -8), 7) + 0.5) * s / 8;
    return (fmin(fmax(floor(7.5 * u / s + 7.5 + *r), 0), 15) - 7.5) * s / 7.5;
}

static double largest_of(const float *values, int n) {
    double largest = 1e-20;
    for (int i = 0; i < n; i++)
        if (fabs((double)values[i]) > largest) largest = fabs((double)values[i]);
    return largest;
}

static void check_log_scale_formula(void) {
    enum {
        ROWS = 19,
        COLS = 31
    };
    struct rig *rig = rig_under_test();
    float values[ROWS * COLS], got[ROWS * COLS];
    const strait_tensor x = make_rows(rig, ROWS, COLS, 0), y = rig_output(rig, ROWS, COLS);
    const strait_tensor packed = rig_bytes(rig, log_scale_bytes(ROWS, COLS));
    assert_int_equal(packed.cols, 4 + 16 * ROWS);
    rig_read(rig, x, values);
    const double most = largest_of(values, ROWS * COLS);
    CHECK_OK(rig->k->log_scale->pack(&rig->stream, packed, (strait_tensor){0}, x,
                                     (strait_pack_params){0}));
    CHECK_OK(rig->k->log_scale->restore(&rig->stream, y, (strait_tensor){0}, packed,
                                        (strait_pack_params){0}));
    rig_read(rig, y, got);
    for (int n = 0; n < ROWS; n++) {
        const double a = largest_of(values + (ptrdiff_t)n * COLS, COLS);
        for (int c = 0; c < COLS; c++) {
            const double expected = coded((double)values[n * COLS + c], a, most, NULL);
            CHECK_NEAR((double)got[n * COLS + c], expected, 1e-5 * fabs(expected));
        }
    }
}

/* Stochastic rounding is unbiased, and every result is within one step of the value. */
static void check_rounding(void) {
    enum {
        COLS = 31
    };
    const int times = rig_is_quick() ? 100 : 4000;
    struct rig *rig = rig_under_test();
    float values[COLS], got[COLS];
    double mean[COLS] = {0};
    const strait_tensor x = rig_input(rig, 1, COLS, 8), y = rig_output(rig, 1, COLS);
    const strait_tensor packed = rig_bytes(rig, log_scale_bytes(1, COLS));
    rig_read(rig, x, values);
    const double step = exp2(ceil(2 * log2(largest_of(values, COLS))) / 2) / 7.5;
    for (int t = 0; t < times; t++) {
        const strait_pack_params params = {.is_stochastic = 1, .seed = 5, .stream = (uint64_t)t};
        CHECK_OK(rig->k->log_scale->pack(&rig->stream, packed, (strait_tensor){0}, x, params));
        CHECK_OK(rig->k->log_scale->restore(&rig->stream, y, (strait_tensor){0}, packed, params));
        rig_read(rig, y, got);
        for (int c = 0; c < COLS; c++) {
            CHECK(fabs((double)got[c] - (double)values[c]) <= step * 1.0001);
            mean[c] += (double)got[c] / times;
        }
    }
    for (int c = 0; c < COLS; c++) // five standard errors: half a step over the root of the draws
        CHECK_NEAR(mean[c], (double)values[c], 5 * step / 2 / sqrt(times));
}

static void packs_by_formula(void **state) {
    (void)state;
    on_every_device(check_log_scale_formula);
}

static void rounds_without_bias(void **state) {
    (void)state;
    on_every_device(check_rounding);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_bytes),
        cmocka_unit_test(ignores_columns_that_are_not_packed),
        cmocka_unit_test(restores_finite_values_from_any_bytes),
        cmocka_unit_test(packs_by_formula),
        cmocka_unit_test(rounds_without_bias),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
