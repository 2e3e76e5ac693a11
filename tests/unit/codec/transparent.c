/* What transparent codecs do to values, beyond the contract. */
#include "pair.h"

enum {
    N = 24,
    D = 64
};

/* The error of the mean over many crossings of one x. */
static double mean_error(strait_codec_spec spec, int crossings) {
    struct pair p;
    spec.rows = N;
    spec.cols = D;
    spec.rounding = STRAIT_ROUND_NEAREST;
    pair_open(&p, spec);
    const strait_tensor x = pair_normals(N, D, 4), y = pair_tensor(N, D), mean = pair_tensor(N, D);
    for (int i = 0; i < crossings; i++) {
        pair_forward(&p, y, x);
        for (int j = 0; j < N * D; j++)
            f32(mean)[j] += f32(y)[j] / (float)crossings;
    }
    const double error = distance(x, mean);
    free(x.data);
    free(y.data);
    free(mean.data);
    pair_close(&p);
    return error;
}

static void feedback_corrects_the_mean(void **state) {
    (void)state;
    static const strait_codec_spec specs[] = {{.name = "none"},
                                              {.name = "int8"},
                                              {.name = "int4"},
                                              {.name = "topk", .keep = 16},
                                              {.name = "lowrank", .rank = 4}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        strait_codec_spec with = specs[i];
        with.has_feedback = 1;
        const double plain = mean_error(specs[i], 40), fed = mean_error(with, 40);
        CHECK(plain > 1e-4);
        if (!(fed < plain / 3)) fail_msg("%s: %g without feedback, %g with", with.name, plain, fed);
    }
}

static void rotation_spreads_outliers(void **state) {
    (void)state;
    struct pair p;
    double error[2];
    for (int rotates = 0; rotates < 2; rotates++) {
        /* Without rotation, on the same tiles: the plain four-bit payload. */
        pair_open(
            &p,
            rotates
                ? (strait_codec_spec){.name = "int4", .rows = N, .cols = D}
                : (strait_codec_spec){
                      .name = "resbm", .variant = "b", .rows = N, .cols = D, .keep = D, .bits = 4});
        const strait_tensor x = pair_normals(N, D, 4), y = pair_tensor(N, D);
        for (int row = 0; row < N; row++)
            f32(x)[row * D + 5] *= 30;
        pair_forward(&p, y, x);
        for (int row = 0; row < N; row++)
            f32(x)[row * D + 5] = f32(y)[row * D + 5] = 0; // leave only the other columns
        error[rotates] = distance(x, y);
        free(x.data);
        free(y.data);
        pair_close(&p);
    }
    CHECK(error[0] > 0.7); // most of them were rounded to 0
    CHECK(error[1] < 0.6);
}

static void topk_keeps_the_largest(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, (strait_codec_spec){.name = "topk", .rows = 2, .cols = 6, .keep = 3});
    const float values[12] = {1, -4, 2, 2, 0.5f, 2, 0, 0, 0, 0, 0, -8};
    const float expected[12] = {0, -4, 2, 2, 0, 0, 0, 0, 0, 0, 0, -8};
    const strait_tensor x = {(void *)values, STRAIT_F32, 2, 6}, y = pair_tensor(2, 6);
    pair_forward(&p, y, x);
    assert_memory_equal(y.data, expected, sizeof expected);
    free(y.data);
    pair_close(&p);
    strait_codec_spec wide = {.name = "topk", .rows = 1, .cols = 70000, .keep = 2};
    pair_open(&p, wide);
    assert_int_equal(p.wire[0].cols, 12);
    const strait_tensor far = pair_tensor(1, 70000), back = pair_tensor(1, 70000);
    f32(far)[69999] = -3;
    f32(far)[2] = 1;
    pair_forward(&p, back, far);
    assert_memory_equal(far.data, back.data, 70000 * sizeof(float));
    free(far.data);
    free(back.data);
    pair_close(&p);
}

/* A microbatch of rank r crosses exactly; for others the warm start reduces the error. */
static void lowrank_is_exact_at_its_rank(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p,
              (strait_codec_spec){.name = "lowrank", .rows = N, .cols = D, .rank = 3, .bits = 32});
    const strait_tensor a = pair_normals(N, 3, 1), b = pair_normals(3, D, 2), x = pair_tensor(N, D),
                        y = pair_tensor(N, D), more = pair_normals(N, D, 3);
    for (int i = 0; i < N * D; i++)
        for (int r = 0; r < 3; r++)
            f32(x)[i] += f32(a)[i / D * 3 + r] * f32(b)[r * D + i % D];
    pair_forward(&p, y, x);
    CHECK(distance(x, y) < 1e-5);
    for (int i = 0; i < N * D; i++)
        f32(x)[i] += 0.3f * f32(more)[i];
    pair_forward(&p, y, x);
    const double cold = distance(x, y);
    /* A crossing of zeros leaves no direction to start from; the next ones recover. */
    const strait_tensor zeros = pair_tensor(N, D);
    pair_forward(&p, y, zeros);
    for (int i = 0; i < N * D; i++)
        CHECK(f32(y)[i] == 0);
    for (int i = 0; i < 5; i++)
        pair_forward(&p, y, x);
    CHECK(distance(x, y) <= cold * 1.0001);
    const strait_tensor all[] = {a, b, x, y, more, zeros};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&p);
}

/* The padding between the two factors must not leak old memory. */
static void lowrank_zeroes_its_padding(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p,
              (strait_codec_spec){.name = "lowrank", .rows = 7, .cols = 9, .rank = 2, .bits = 8});
    const strait_tensor x = pair_normals(7, 9, 1), y = pair_tensor(7, 9);
    const size_t end = sizeof(float) + 7 + 7 * 2; // of P: base, scales, codes
    memset(p.wire[0].data, 0x55, (size_t)p.wire[0].cols);
    pair_forward(&p, y, x);
    for (size_t i = end; i < (end + 3) / 4 * 4; i++)
        assert_int_equal(((const unsigned char *)p.wire[0].data)[i], 0);
    free(x.data);
    free(y.data);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feedback_corrects_the_mean),
        cmocka_unit_test(rotation_spreads_outliers),
        cmocka_unit_test(topk_keeps_the_largest),
        cmocka_unit_test(lowrank_is_exact_at_its_rank),
        cmocka_unit_test(lowrank_zeroes_its_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
