/* Products of factors rounded to 8 bits, on devices that have them, compared with the reference
 * loops: the codes exactly, the sums as near as tensor cores keep them. */
#include "backend/fp8.h"
#include "rig.h"

/* Tensor cores add products of 8 bits in fewer bits than f32. */
#define FP8_NEAR  2e-3
#define BF16_NEAR 8e-3

/* Keeps every code of both factors: a difference of one is beyond any tolerance used here. */
static void keep_codes(struct rig *rig, strait_tensor space, int64_t bytes) {
    strait_tensor codes = {(char *)space.data + STRAIT_FP8_HEAD, STRAIT_I8, 1,
                           bytes - STRAIT_FP8_HEAD};
    rig_keep_bytes(rig, codes);
}

/* variant: bits 0 and 1 transpose, bit 2 scales and adds to y, bit 3: y is f32, bit 4: a is a
 * gradient. Factors are far from 1, in opposite directions: both need their scale. */
static void run_matmul(struct rig *rig, shape s) {
    const int ta = s.variant & 1, tb = s.variant >> 1 & 1, adds = s.variant >> 2 & 1;
    if (rig->k->fp8 == NULL) skip();
    const strait_tensor a = rig_act_large(rig, ta ? s.inner : s.rows, ta ? s.rows : s.inner, 1,
                                          3e-7f);
    const strait_tensor b = rig_act_large(rig, tb ? s.cols : s.inner, tb ? s.inner : s.cols, 2,
                                          2e6f);
    const strait_tensor y = s.variant & 8 ? (adds ? rig_input(rig, s.rows, s.cols, 3)
                                                  : rig_output(rig, s.rows, s.cols))
                            : adds        ? rig_act(rig, s.rows, s.cols, 3)
                                          : rig_act_output(rig, s.rows, s.cols);
    const int64_t bytes = strait_fp8_space(s.rows, s.cols, s.inner);
    const strait_tensor space = rig_bytes(rig, bytes);
    const strait_matmul_params params = {.transpose_a = ta,
                                         .transpose_b = tb,
                                         .alpha = adds ? -0.7f : 1.0f,
                                         .beta = adds ? 0.5f : 0.0f};
    CHECK_OK(rig->k->fp8->matmul(
        &rig->stream, y, a, b, params,
        (strait_fp8_params){.is_gradient = s.variant >> 4 & 1, .space = space}));
    rig_keep(rig, y);
    if ((s.variant & 8) != 0) keep_codes(rig, space, bytes); // bf16 has a wider tolerance
}

/* Around the tiles of the kernel that transposes: 128 rows, 64 columns. */
static void matches_reference_matmul(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{16, 16, 16},   {48, 32, 80},   {128, 64, 160},
                                       {144, 208, 48}, {16, 272, 528}, {112, 80, 272}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int variant = 0; variant < 32; variant++)
            check_one_of_many(run_matmul,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variant},
                              (variant & 8) != 0 ? FP8_NEAR : BF16_NEAR);
}

/* variant: what a holds besides normal numbers: 0 nothing but zeros, 1 a NaN, 2 an infinity, 3 a
 * value so small that its scale reaches the limit, 4 one so large that its scale is far
 * beyond that limit in the other direction */
static void run_edges(struct rig *rig, shape s) {
    static const float odd[] = {0, NAN, -INFINITY, 1e-38f, 1e37f};
    enum {
        N = 32
    };
    if (rig->k->fp8 == NULL) skip();
    float values[N * N];
    for (int i = 0; i < N * N; i++)
        values[i] = s.variant == 0 ? 0.0f : (float)(i % 13 - 6) * (s.variant == 3 ? 1e-38f : 1.0f);
    values[5 * N + 7] = odd[s.variant];
    const strait_tensor a = rig_act_values(rig, N, N, values), b = rig_act(rig, N, N, 2);
    const strait_tensor y = rig_output(rig, N, N);
    const int64_t bytes = strait_fp8_space(N, N, N);
    const strait_tensor space = rig_bytes(rig, bytes);
    for (int is_gradient = 0; is_gradient < 2; is_gradient++) {
        CHECK_OK(
            rig->k->fp8->matmul(&rig->stream, y, a, b, (strait_matmul_params){.alpha = 1.0f},
                                (strait_fp8_params){.is_gradient = is_gradient, .space = space}));
        rig_keep(rig, y);
        keep_codes(rig, space, bytes);
    }
}

static void matches_reference_at_the_edges(void **state) {
    (void)state;
    for (int variant = 0; variant < 5; variant++)
        check_case(run_edges, (shape){.variant = variant}, FP8_NEAR);
}

/* Non-finite values must reach the gradient norm, which then skips the step. */
static void nonfinite_values_stay_nonfinite(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    for (int variant = 1; variant < 3; variant++) {
        rig_clear(rig);
        run_edges(rig, (shape){.variant = variant});
        CHECK(isnan(rig->kept[5 * 32]));
        CHECK(isfinite(rig->kept[6 * 32]));
    }
    rig_clear(rig);
}

/* The formats themselves: every code is the nearest to its own value, and halves round to even. */
static void codes_and_values_are_inverse(void **state) {
    (void)state;
    for (int is_gradient = 0; is_gradient < 2; is_gradient++) {
        const int last = is_gradient ? 0x7b : 0x7e; // of the finite values
        for (int code = 0; code <= last; code++) {
            const float value = strait_fp8_value((uint8_t)code, is_gradient);
            assert_int_equal(strait_fp8_code(value, is_gradient), code);
            assert_int_equal(strait_fp8_code(-value, is_gradient), code | 0x80);
            if (code == last) continue;
            const float next = strait_fp8_value((uint8_t)(code + 1), is_gradient);
            CHECK(next > value);
            assert_int_equal(strait_fp8_code((value + next) / 2, is_gradient),
                             code % 2 == 0 ? code : code + 1);
        }
        CHECK_NEAR(strait_fp8_value((uint8_t)last, is_gradient), is_gradient ? 57344 : 448, 0);
        CHECK(isnan(strait_fp8_value(STRAIT_FP8_NAN, is_gradient)));
    }
}

/* The largest magnitude comes as near to the end of the range as a power of two brings it. */
static void scales_fill_the_range(void **state) {
    (void)state;
    for (int is_gradient = 0; is_gradient < 2; is_gradient++) {
        const float most = is_gradient ? 57344.0f : 448.0f;
        for (float largest = 1e-20f; largest < 2e38f; largest *= 1.37f) {
            const float scaled = ldexpf(largest, strait_fp8_exponent(largest, is_gradient));
            CHECK(scaled <= most && 2 * scaled > most);
        }
        assert_int_equal(strait_fp8_exponent(0.0f, is_gradient), 0);
        assert_int_equal(strait_fp8_exponent(INFINITY, is_gradient), 0);
        assert_int_equal(strait_fp8_exponent(NAN, is_gradient), 0);
        assert_int_equal(strait_fp8_exponent(1e-44f, is_gradient), STRAIT_FP8_REACH);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_matmul),
        cmocka_unit_test(matches_reference_at_the_edges),
        cmocka_unit_test(nonfinite_values_stay_nonfinite),
        cmocka_unit_test(codes_and_values_are_inverse),
        cmocka_unit_test(scales_fill_the_range),
    };
    return cmocka_run_group_tests(tests, open_bf16_rigs, close_rigs);
}
