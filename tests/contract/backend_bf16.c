/* Kernels in bf16, on devices that support it: as near to the reference loops on the same values as
 * bf16 allows. */
#include "rig.h"

#define BF16_NEAR 8e-3 // two roundings of half a unit in the last place, 2^-8 of a value each

static const int64_t awkward_rows[] = {1, 3, 17, 129};
static const int64_t awkward_cols[] = {1, 7, 64, 133};

static void over_shapes(rig_case run, double tolerance) {
    for (size_t r = 0; r < COUNT(awkward_rows); r++)
        for (size_t c = 0; c < COUNT(awkward_cols); c++)
            check_one_of_many(run, (shape){.rows = awkward_rows[r], .cols = awkward_cols[c]},
                              tolerance);
    check_case(run, (shape){.rows = 3, .cols = 70001}, tolerance);
}

static void run_elementwise(struct rig *rig, shape s) {
    const strait_tensor a = rig_act(rig, s.rows + 1, s.cols, 1);
    const strait_tensor b = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor off = strait_tensor_rows(a, 1, s.rows); // not aligned to 16 bytes
    CHECK_OK(rig->k->fill(&rig->stream, y, 1.2599f));
    rig_keep(rig, y);
    CHECK_OK(rig->k->add(&rig->stream, y, strait_tensor_rows(a, 0, s.rows), b));
    rig_keep(rig, y);
    CHECK_OK(rig->k->axpy(&rig->stream, y, -0.37f, off));
    rig_keep(rig, y);
    CHECK_OK(rig->k->lerp(&rig->stream, y, b, 0.3f));
    rig_keep(rig, y);
    CHECK_OK(rig->k->cast(&rig->stream, y, off));
    rig_keep(rig, y);
}

static void matches_reference_elementwise(void **state) {
    (void)state;
    over_shapes(run_elementwise, BF16_NEAR);
}

/* What bottlenecks need besides products: resize_cols, relu and silu. */
static void run_ends(struct rig *rig, shape s) {
    const int64_t narrow = (s.cols + 2) / 3;
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), d_y = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor code = rig_act_output(rig, s.rows, narrow);
    CHECK_OK(rig->k->silu(&rig->stream, y, x));
    rig_keep(rig, y);
    CHECK_OK(rig->k->silu_back(&rig->stream, y, d_y, x));
    rig_keep(rig, y);
    CHECK_OK(rig->k->relu(&rig->stream, y, x));
    rig_keep(rig, y);
    CHECK_OK(rig->k->relu_back(&rig->stream, d_y, d_y, y));
    rig_keep(rig, d_y);
    CHECK_OK(rig->k->resize_cols(&rig->stream, code, x));
    rig_keep(rig, code);
    CHECK_OK(rig->k->resize_cols(&rig->stream, y, code));
    rig_keep(rig, y);
}

static void matches_reference_bottleneck(void **state) {
    (void)state;
    over_shapes(run_ends, BF16_NEAR);
}

static void run_norms(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 4);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor total = rig_output(rig, 1, 1);
    CHECK_OK(rig->k->sum_squares(&rig->stream, total, x));
    CHECK_OK(rig->k->normalise(&rig->stream, y, x, total, 1e-3f));
    rig_keep(rig, y);
}

static void run_squares(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 4);
    const strait_tensor total = rig_output(rig, 1, 1);
    CHECK_OK(rig->k->sum_squares(&rig->stream, total, x));
    rig_keep(rig, total);
}

static void matches_reference_norms(void **state) {
    (void)state;
    over_shapes(run_norms, BF16_NEAR);
    over_shapes(run_squares, 1e-6);
}

/* variant: bits 0 and 1 transpose, bit 2 scales and adds to y, bit 3: y is f32, bit 4: a and b are
 */
static void run_matmul(struct rig *rig, shape s) {
    const int ta = s.variant & 1, tb = s.variant >> 1 & 1, adds = s.variant >> 2 & 1;
    strait_tensor (*input)(struct rig *, int64_t, int64_t, int) = s.variant & 16 ? rig_input
                                                                                 : rig_act;
    const strait_tensor a = input(rig, ta ? s.inner : s.rows, ta ? s.rows : s.inner, 1);
    const strait_tensor b = input(rig, tb ? s.cols : s.inner, tb ? s.inner : s.cols, 2);
    const strait_tensor y = s.variant & 8 ? (adds ? rig_input(rig, s.rows, s.cols, 3)
                                                  : rig_output(rig, s.rows, s.cols))
                            : adds        ? rig_act(rig, s.rows, s.cols, 3)
                                          : rig_act_output(rig, s.rows, s.cols);
    const strait_matmul_params params = {.transpose_a = ta,
                                         .transpose_b = tb,
                                         .alpha = adds ? -0.7f : 1.0f,
                                         .beta = adds ? 0.5f : 0.0f};
    CHECK_OK(rig->k->matmul(&rig->stream, y, a, b, params));
    rig_keep(rig, y);
}

static void matches_reference_matmul(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},     {3, 7, 5},    {17, 129, 1},   {129, 17, 133},
                                       {133, 1, 17},  {64, 64, 64}, {8, 33, 257},   {300, 40, 9},
                                       {40, 520, 33}, {5, 3, 1100}, {256, 264, 304}};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int variant = 0; variant < 32; variant++)
            check_one_of_many(run_matmul,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variant},
                              BF16_NEAR);
}

/* bf16 factors and an f32 result: only the sum is rounded. */
static void sums_products_in_f32(void **state) {
    (void)state;
    for (int variant = 8; variant < 16; variant++)
        check_case(run_matmul, (shape){.rows = 65, .cols = 40, .inner = 2100, .variant = variant},
                   2e-5);
}

/* variant: 0: a second moment per weight, 1: per column, 2: per row */
static void run_copy(struct rig *rig, shape s) {
    const strait_tensor weight = rig_input(rig, s.rows, s.cols, 1), absent = {0};
    const strait_tensor m = rig_input(rig, s.rows, s.cols, 2);
    const strait_tensor v = rig_output(rig, s.variant == 1 ? 1 : s.rows,
                                       s.variant == 2 ? 1 : s.cols);
    strait_tensor copy = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->fill(&rig->stream, v, 0.5f));
    const int copies = copy.dtype == STRAIT_BF16;
    const strait_adamw_params params = {.learning_rate = 0.1f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.95f,
                                        .epsilon = 1e-8f,
                                        .weight_decay = 0.1f,
                                        .step = 3,
                                        .copy = copies ? copy : absent};
    CHECK_OK(rig->k->adamw(&rig->stream, weight, m, v, rig_input(rig, s.rows, s.cols, 3), absent,
                           params));
    if (!copies) CHECK_OK(rig->k->cast(&rig->stream, copy, weight));
    rig_keep(rig, copy);
}

static void writes_rounded_weight_copies(void **state) {
    (void)state;
    for (int variant = 0; variant < 3; variant++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_one_of_many(
                    run_copy,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .variant = variant},
                    BF16_NEAR);
}

/* More keys than the scratch holds sums of gradients for. */
static void run_long_attention(struct rig *rig, shape s) {
    const int64_t cols = 3 * s.cols;
    const strait_heads heads = {.n_query = 1,
                                .n_key = 1,
                                .head_dim = (int)s.cols,
                                .seq_len = s.rows,
                                .scale = 1.0f / sqrtf((float)s.cols)};
    const strait_tensor qkv = rig_act(rig, s.rows, cols, 1), d_y = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols), lse = rig_output(rig, s.rows, 1);
    const strait_tensor d_qkv = rig_act_output(rig, s.rows, cols);
    CHECK_OK(rig->k->attention(&rig->stream, y, lse, qkv, heads));
    rig_keep(rig, y);
    rig_keep(rig, lse);
    CHECK_OK(rig->k->attention_back(&rig->stream, d_qkv, d_y, y, qkv, lse, heads));
    rig_keep(rig, d_qkv);
}

static void matches_reference_long_attention(void **state) {
    (void)state;
    check_case(run_long_attention, (shape){.rows = rig_is_quick() ? 300 : 1050, .cols = 256}, 2e-2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_elementwise),
        cmocka_unit_test(matches_reference_bottleneck),
        cmocka_unit_test(matches_reference_norms),
        cmocka_unit_test(matches_reference_matmul),
        cmocka_unit_test(sums_products_in_f32),
        cmocka_unit_test(writes_rounded_weight_copies),
        cmocka_unit_test(matches_reference_long_attention),
    };
    return cmocka_run_group_tests(tests, open_bf16_rigs, close_rigs);
}
