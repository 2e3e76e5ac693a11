/* Kernels of codecs, compared with the reference loops: equal bytes, and values within tolerance.
 */
#include "rig.h"

static const int64_t awkward_rows[] = {1, 3, 17, 129};
static const int64_t awkward_cols[] = {1, 5, 32, 133, 1101};

static void over_shapes(rig_case run, int n_variants, double tolerance) {
    for (int variant = 0; variant < n_variants; variant++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_one_of_many(
                    run,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .variant = variant},
                    tolerance);
}

/* The same with an offset of `offset` bytes: packed bytes may have any alignment. */
static strait_tensor make_bytes_at(struct rig *rig, int64_t bytes, int64_t offset) {
    strait_tensor t = rig_bytes(rig, bytes + offset);
    t.data = (char *)t.data + offset;
    t.cols = bytes;
    return t;
}

/* Rows of very different magnitude, one of zeros, and optionally some non-finite values. */
static strait_tensor make_rows(struct rig *rig, shape s, int has_bad_values) {
    const strait_tensor x = rig_input(rig, s.rows, s.cols, 1);
    float *values = malloc((size_t)(s.rows * s.cols) * sizeof *values);
    assert_non_null(values);
    rig_read(rig, x, values);
    for (int64_t i = 0; i < s.rows * s.cols; i++) {
        const int64_t row = i / s.cols;
        values[i] *= row % 5 == 4 ? 0.0f : ldexpf(1, (int)(row % 7) * -4);
        if (has_bad_values && i % 11 == 3) values[i] = i % 2 ? NAN : -INFINITY;
        if (has_bad_values && i % 13 == 5) values[i] = 1e30f;
    }
    rig_write(rig, x, values);
    free(values);
    return x;
}

static const int all_bits[] = {32, 16, 8, 4};

/* variant: bits per value, then stochastic, then with bad values; inner: offset of the bytes */
static void run_payload(struct rig *rig, shape s) {
    const int bits = all_bits[s.variant % 4];
    const strait_pack_params params = {bits, s.variant / 4 % 2, 3, 1234567, 0};
    const strait_tensor x = make_rows(rig, s, s.variant / 8);
    const strait_tensor stats = rig_zeros(rig, s.rows, 3), y = rig_output(rig, s.rows, s.cols);
    const int64_t bytes = bits >= 16 ? s.rows * s.cols * bits / 8
                                     : 4 + s.rows * (1 + (s.cols * bits + 7) / 8);
    const strait_tensor packed = make_bytes_at(rig, bytes, s.inner);
    CHECK_OK(rig->k->pack_rows(&rig->stream, packed, stats, x, params));
    rig_keep_bytes(rig, packed);
    rig_keep(rig, stats);
    CHECK_OK(rig->k->restore_rows(&rig->stream, y, stats, packed, params));
    rig_keep(rig, y);
    rig_keep(rig, stats);
    CHECK_OK(rig->k->restore_rows(&rig->stream, y, (strait_tensor){0}, packed, params));
    CHECK_OK(rig->k->measure_rows(&rig->stream, stats, x, y));
    rig_keep(rig, stats);
}

static void matches_reference_payloads(void **state) {
    (void)state;
    over_shapes(run_payload, 16, 1e-5);
}

static void packs_to_any_address(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++)
        for (int64_t offset = 1; offset < 4; offset++) {
            check_one_of_many(run_payload,
                              (shape){.rows = 12, .cols = 32, .inner = offset, .variant = variant},
                              1e-5);
            check_one_of_many(run_payload,
                              (shape){.rows = 7, .cols = 133, .inner = offset, .variant = variant},
                              1e-5);
        }
}

/* Columns that are not packed change no byte, and restoring does not write them. variant: as in
 * run_payload */
static void run_padded(struct rig *rig, shape s) {
    const strait_tensor narrow = make_rows(rig, s, s.variant / 8);
    const strait_tensor x = rig_input(rig, s.rows, s.cols + 3, 2);
    const strait_tensor y = rig_output(rig, s.rows, s.cols + 3);
    const strait_tensor side = rig_act_output(rig, s.rows, s.cols + 3);
    const strait_regroup_params how_wide = {
        .n_groups = 1, .to_cols = s.cols, .from_cols = s.cols, .alpha = 1};
    CHECK_OK(rig->k->regroup_cols(&rig->stream, x, narrow, how_wide));
    const strait_pack_params params = {all_bits[s.variant % 4], s.variant / 4 % 2, 3, 77, s.cols};
    const int64_t bytes = params.bits >= 16 ? s.rows * s.cols * params.bits / 8
                                            : 4 + s.rows * (1 + (s.cols * params.bits + 7) / 8);
    const strait_tensor packed = rig_bytes(rig, bytes), same = rig_bytes(rig, bytes);
    const strait_tensor stats = rig_zeros(rig, s.rows, 3);
    CHECK_OK(rig->k->pack_rows(&rig->stream, packed, stats, x, params));
    CHECK_OK(rig->k->pack_rows(&rig->stream, same, (strait_tensor){0}, narrow, params));
    CHECK_OK(rig->k->restore_rows(&rig->stream, y, stats, packed, params));
    CHECK_OK(rig->k->restore_rows(&rig->stream, side, (strait_tensor){0}, packed, params));
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
    for (int variant = 0; variant < 16; variant++) {
        check_one_of_many(run_padded, (shape){.rows = 9, .cols = 31, .variant = variant}, 1e-5);
        check_one_of_many(run_padded, (shape){.rows = 130, .cols = 5, .variant = variant}, 1e-5);
        check_one_of_many(run_padded, (shape){.rows = 77, .cols = 20, .variant = variant}, 1e-5);
    }
}

/* Random bytes restore to finite values. variant: bits per value, and which bytes */
static void run_garbage(struct rig *rig, shape s) {
    const int bits = all_bits[s.variant % 4];
    const strait_pack_params params = {.bits = bits};
    const int64_t bytes = bits >= 16 ? s.rows * s.cols * bits / 8
                                     : 4 + s.rows * (1 + (s.cols * bits + 7) / 8);
    const strait_tensor packed = rig_bytes(rig, bytes);
    const strait_tensor stats = rig_zeros(rig, s.rows, 3), y = rig_output(rig, s.rows, s.cols);
    unsigned char *noise = malloc((size_t)bytes);
    assert_non_null(noise);
    for (int64_t i = 0; i < bytes; i++)
        noise[i] = (unsigned char)(s.variant < 4 ? 255 : i * 7919 * (s.variant + 1) >> 3);
    rig_write(rig, packed, (const float *)(const void *)noise);
    free(noise);
    CHECK_OK(rig->k->restore_rows(&rig->stream, y, stats, packed, params));
    rig_keep(rig, y);
    for (size_t i = 0; i < rig->n_kept; i++)
        CHECK(isfinite(rig->kept[i]));
    rig_keep(rig, strait_tensor_reshape(stats, 1, s.rows * 3));
}

static void restores_any_bytes(void **state) {
    (void)state;
    over_shapes(run_garbage, 24, 1e-5);
}

/* variant: bit 0: stochastic, bit 1: with ties */
static void run_top(struct rig *rig, shape s) {
    const strait_tensor x = make_rows(rig, s, 0);
    if (s.variant & 2) { // many values of equal magnitude
        float *values = malloc((size_t)(s.rows * s.cols) * sizeof *values);
        assert_non_null(values);
        rig_read(rig, x, values);
        for (int64_t i = 0; i < s.rows * s.cols; i++)
            values[i] = values[i] > 0 ? 2.0f : -2.0f;
        rig_write(rig, x, values);
        free(values);
    }
    const int64_t keep = (s.cols + 2) / 3, bytes = s.cols > 65536 ? 6 : 4;
    const strait_tensor packed = make_bytes_at(rig, s.rows * keep * bytes, s.inner);
    const strait_tensor y = rig_output(rig, s.rows, s.cols), stats = rig_zeros(rig, s.rows, 3);
    CHECK_OK(rig->k->topk->pack(&rig->stream, packed, x, keep,
                                (strait_pack_params){16, s.variant & 1, 9, 10, 0}));
    rig_keep_bytes(rig, packed);
    CHECK_OK(rig->k->topk->restore(&rig->stream, y, stats, packed, keep));
    rig_keep(rig, y);
    rig_keep(rig, stats);
}

static void matches_reference_topk(void **state) {
    (void)state;
    over_shapes(run_top, 4, 1e-5);
    check_case(run_top, (shape){.rows = 9, .cols = 133, .inner = 1}, 1e-5);
    check_case(run_top, (shape){.rows = 2, .cols = 20001}, 1e-5);
    check_case(run_top, (shape){.rows = 2, .cols = 65543, .variant = 1}, 1e-5);
}

/* Columns out of order, repeated and outside the row: the last of equal columns wins. */
static void run_top_garbage(struct rig *rig, shape s) {
    const int64_t keep = s.inner;
    const strait_tensor packed = rig_bytes(rig, s.rows * keep * 4);
    const strait_tensor y = rig_output(rig, s.rows, s.cols), stats = rig_zeros(rig, s.rows, 3);
    unsigned char *noise = malloc((size_t)packed.cols);
    assert_non_null(noise);
    for (int64_t i = 0; i < packed.cols; i++)
        noise[i] = (unsigned char)(i < packed.cols / 2 ? i * 37 >> 1 : i % 2 ? 0 : i * 7919 >> 2);
    rig_write(rig, packed, (const float *)(const void *)noise);
    free(noise);
    CHECK_OK(rig->k->topk->restore(&rig->stream, y, stats, packed, keep));
    rig_keep(rig, y);
    rig_keep(rig, stats);
}

static void restores_any_topk_bytes(void **state) {
    (void)state;
    check_case(run_top_garbage, (shape){.rows = 17, .cols = 133, .inner = 90}, 1e-5);
    check_case(run_top_garbage, (shape){.rows = 3, .cols = 20, .inner = 20}, 1e-5);
}

static void run_hadamard(struct rig *rig, shape s) {
    const strait_tensor x = rig_input(rig, s.rows, s.cols, 1);
    const strait_tensor y = rig_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->hadamard->transform(&rig->stream, y, x, s.inner));
    rig_keep(rig, y);
    CHECK_OK(rig->k->hadamard->transform(&rig->stream, y, y, s.inner));
    float *once = malloc((size_t)(s.rows * s.cols) * 2 * sizeof *once);
    assert_non_null(once);
    float *twice = once + s.rows * s.cols;
    rig_read(rig, x, once);
    rig_read(rig, y, twice);
    for (int64_t i = 0; i < s.rows * s.cols; i++)
        CHECK_NEAR(once[i], twice[i], 1e-5);
    free(once);
}

static void matches_reference_hadamard(void **state) {
    (void)state;
    static const int64_t tiles[] = {1, 2, 16, 128, 1024};
    for (size_t t = 0; t < COUNT(tiles); t++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            check_one_of_many(
                run_hadamard,
                (shape){.rows = awkward_rows[r], .cols = 3 * tiles[t], .inner = tiles[t]}, 1e-6);
    check_case(run_hadamard, (shape){.rows = 1, .cols = 32768, .inner = 16384}, 1e-6);
}

static void run_resize(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1);
    const int64_t cols[] = {1, s.cols, s.cols + 37};
    const strait_tensor y = rig_act_output(rig, s.rows, cols[s.variant]);
    CHECK_OK(rig->k->resize_cols(&rig->stream, y, x));
    rig_keep(rig, y);
}

static void resizes_columns(void **state) {
    (void)state;
    over_shapes(run_resize, 3, 0);
}

static void run_silu(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), d_y = rig_act(rig, s.rows, s.cols, 2);
    float *values = malloc((size_t)(s.rows * s.cols) * sizeof *values);
    assert_non_null(values);
    rig_read(rig, x, values);
    for (int64_t i = 0; i < s.rows * s.cols; i += 3)
        values[i] *= 60; // extreme values of both signs
    rig_write(rig, x, values);
    free(values);
    const strait_tensor y = s.variant ? x : rig_act_output(rig, s.rows, s.cols);
    const strait_tensor d_x = s.variant ? d_y : rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->silu_back(&rig->stream, d_x, d_y, x));
    CHECK_OK(rig->k->silu(&rig->stream, y, x));
    rig_keep(rig, y);
    rig_keep(rig, d_x);
}

static void matches_reference_silu(void **state) {
    (void)state;
    over_shapes(run_silu, 2, 2e-6);
}

struct silu_case {
    strait_tensor x, y;
};

static void silu_forward(struct rig *rig, void *arg) {
    const struct silu_case *c = arg;
    CHECK_OK(rig->k->silu(&rig->stream, c->y, c->x));
}

static void silu_gradient_matches_differences(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    struct silu_case c = {rig_input(rig, 3, 17, 1), rig_output(rig, 3, 17)};
    const strait_tensor d_y = rig_input(rig, 3, 17, 2), d_x = rig_output(rig, 3, 17);
    CHECK_OK(rig->k->silu_back(&rig->stream, d_x, d_y, c.x));
    const gradient g = {rig, silu_forward, &c, {c.y}, {d_y}};
    check_gradient(&g, c.x, d_x, "silu");
    rig_check(rig);
}

/* variant 1: the second column equals the first */
static void run_orthonormalise(struct rig *rig, shape s) {
    const strait_tensor q = rig_input(rig, s.rows, s.cols, 1);
    float *values = malloc((size_t)(s.rows * s.cols) * sizeof *values);
    assert_non_null(values);
    rig_read(rig, q, values);
    for (int64_t n = 0; s.variant && n < s.rows; n++)
        values[n * s.cols + 1] = -2 * values[n * s.cols];
    rig_write(rig, q, values);
    CHECK_OK(rig->k->lowrank->orthonormalise(&rig->stream, q));
    rig_keep(rig, q);
    rig_read(rig, q, values);
    for (int64_t a = 0; a < s.cols; a++)
        for (int64_t b = 0; b <= a; b++) {
            double dot = 0;
            for (int64_t n = 0; n < s.rows; n++)
                dot += (double)values[n * s.cols + a] * (double)values[n * s.cols + b];
            CHECK_NEAR(dot, a == b && !(s.variant && a == 1), 1e-5);
        }
    free(values);
}

static void orthonormalises_columns(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        check_case(run_orthonormalise, (shape){.rows = 17, .cols = 5, .variant = variant}, 1e-5);
        check_case(run_orthonormalise, (shape){.rows = 129, .cols = 33, .variant = variant}, 1e-5);
    }
    check_case(run_orthonormalise, (shape){.rows = 3, .cols = 1}, 1e-5);
    check_case(run_orthonormalise, (shape){.rows = 700, .cols = 50, .variant = 1}, 1e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_payloads),
        cmocka_unit_test(packs_to_any_address),
        cmocka_unit_test(ignores_columns_that_are_not_packed),
        cmocka_unit_test(restores_any_bytes),
        cmocka_unit_test(matches_reference_topk),
        cmocka_unit_test(restores_any_topk_bytes),
        cmocka_unit_test(matches_reference_hadamard),
        cmocka_unit_test(resizes_columns),
        cmocka_unit_test(matches_reference_silu),
        cmocka_unit_test(silu_gradient_matches_differences),
        cmocka_unit_test(orthonormalises_columns),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
