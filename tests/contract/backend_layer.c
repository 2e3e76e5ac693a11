/* Norms, rotation and activation functions, compared with the reference loops. */
#include "rig.h"

static const strait_tensor absent = {0};
static const int64_t awkward_rows[] = {1, 3, 17, 129};
static const int64_t awkward_cols[] = {1, 6, 64, 133, 688};

static void over_shapes(rig_case run, int n_variants, double tolerance) {
    for (int variant = 0; variant < n_variants; variant++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_one_of_many(
                    run,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .variant = variant},
                    tolerance);
}

/* variant: bit 0: with delta, bit 1: with gain, bit 2: writes the sum over x */
static void run_rmsnorm(struct rig *rig, shape s) {
    const int has_delta = s.variant & 1, has_gain = s.variant & 2, is_over = s.variant & 4;
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1);
    const strait_tensor delta = has_delta ? rig_act(rig, s.rows, s.cols, 2) : absent;
    const strait_tensor gain = has_gain ? rig_input(rig, 1, s.cols, 3) : absent;
    const strait_tensor sum = !has_delta ? absent
                              : is_over  ? x
                                         : rig_act_output(rig, s.rows, s.cols);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols), rstd = rig_output(rig, s.rows, 1);
    CHECK_OK(
        rig->k->rmsnorm(&rig->stream, y, sum, rstd, x, delta, (strait_norm_params){gain, 1e-5f}));
    rig_keep(rig, y);
    rig_keep(rig, rstd);
    if (has_delta) rig_keep(rig, sum);
    const strait_tensor d_y = rig_act(rig, s.rows, s.cols, 4);
    const strait_tensor d_x = rig_act(rig, s.rows, s.cols, 5);
    const strait_tensor d_gain = has_gain ? rig_input(rig, 1, s.cols, 6) : absent;
    CHECK_OK(rig->k->rmsnorm_back(&rig->stream, d_x, d_gain, d_y, has_delta ? sum : x, gain, rstd));
    rig_keep(rig, d_x);
    if (has_gain) rig_keep(rig, d_gain);
}

static void matches_reference_rmsnorm(void **state) {
    (void)state;
    over_shapes(run_rmsnorm, 8, 3e-6);
}

/* Rows wider than the registers of a block hold. */
static void matches_reference_rmsnorm_of_wide_rows(void **state) {
    (void)state;
    static const int64_t cols[] = {2101, 8200, 9001};
    for (size_t c = 0; c < COUNT(cols); c++)
        for (int variant = 0; variant < 4; variant++)
            check_case(run_rmsnorm, (shape){.rows = 9, .cols = cols[c], .variant = variant}, 3e-6);
}

static void run_zeros(struct rig *rig, shape s) {
    const strait_tensor x = rig_act_output(rig, s.rows, s.cols),
                        y = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor rstd = rig_output(rig, s.rows, 1);
    CHECK_OK(rig->k->fill(&rig->stream, x, 0));
    CHECK_OK(rig->k->rmsnorm(&rig->stream, y, absent, rstd, x, absent,
                             (strait_norm_params){absent, 1e-5f}));
    rig_keep(rig, y);
    rig_keep(rig, rstd);
}

static void rmsnorm_of_zeros_is_zero(void **state) {
    (void)state;
    check_case(run_zeros, (shape){.rows = 3, .cols = 37}, 1e-6);
}

/* variant: bit 0: with norm, bit 1: with gain, bit 2: in place where that is allowed */
static void run_rotate(struct rig *rig, shape s) {
    const strait_heads heads = s.heads;
    const int has_norm = s.variant & 1, has_gain = s.variant & 2;
    const int is_over = (s.variant & 4) && !has_norm;
    const int64_t n_rows = s.rows * heads.seq_len;
    const int64_t cols = (int64_t)(heads.n_query + 2 * heads.n_key) * heads.head_dim;
    strait_rotate_params params = {.heads = heads, .epsilon = 1e-5f};
    rig_angles(rig, heads, &params.cos, &params.sin);
    const strait_tensor x = rig_act(rig, n_rows, cols, 1);
    const strait_tensor y = is_over ? x : rig_act_output(rig, n_rows, cols);
    const strait_tensor rstd = has_norm ? rig_output(rig, n_rows, heads.n_query + heads.n_key)
                                        : absent;
    if (has_gain) params.gain = rig_input(rig, 2, heads.head_dim, 2);
    CHECK_OK(rig->k->rotate(&rig->stream, y, rstd, x, params));
    rig_keep(rig, y);
    if (has_norm) rig_keep(rig, rstd);
    const strait_tensor d_y = rig_act(rig, n_rows, cols, 3);
    const strait_tensor d_x = s.variant & 4 ? d_y : rig_act_output(rig, n_rows, cols);
    const strait_tensor d_gain = has_gain ? rig_input(rig, 2, heads.head_dim, 4) : absent;
    CHECK_OK(
        rig->k->rotate_back(&rig->stream, d_x, d_gain, d_y, has_norm ? x : absent, rstd, params));
    rig_keep(rig, d_x);
    if (has_gain) rig_keep(rig, d_gain);
}

static void matches_reference_rotation(void **state) {
    (void)state;
    static const int variants[] = {0, 1, 3, 4, 5, 7};
    static const int groups[][2] = {{1, 1}, {4, 2}, {6, 2}, {3, 3}};
    static const int dims[] = {2, 6, 8, 64, 70, 80, 128, 256};
    static const int64_t lengths[] = {1, 5, 33};
    for (size_t v = 0; v < COUNT(variants); v++)
        for (size_t g = 0; g < COUNT(groups); g++)
            for (size_t d = 0; d < COUNT(dims); d++)
                for (size_t t = 0; t < COUNT(lengths); t++)
                    check_one_of_many(run_rotate,
                                      (shape){.rows = 3,
                                              .variant = variants[v],
                                              .heads = {.n_query = groups[g][0],
                                                        .n_key = groups[g][1],
                                                        .head_dim = dims[d],
                                                        .seq_len = lengths[t]}},
                                      1e-5);
}

static void check_same_bits(struct rig *rig, strait_tensor a, strait_tensor b) {
    const int64_t n = a.rows * a.cols;
    float *const values = rig_floats(2 * n);
    rig_read(rig, a, values);
    rig_read(rig, b, values + n);
    assert_memory_equal(values, values + n, (size_t)n * sizeof *values);
    free(values);
}

static void run_swiglu(struct rig *rig, shape s) {
    const strait_tensor gate_up = rig_act_large(rig, s.rows, 2 * s.cols, 1,
                                                4); // includes the tails of silu
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols),
                        d_y = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor d_gate_up = rig_act_output(rig, s.rows, 2 * s.cols);
    CHECK_OK(rig->k->swiglu(&rig->stream, y, gate_up));
    rig_keep(rig, y);
    CHECK_OK(rig->k->swiglu_back(&rig->stream, d_gate_up, absent, d_y, gate_up));
    rig_keep(rig, d_gate_up);
    CHECK_OK(rig->k->swiglu_back(&rig->stream, gate_up, d_y, d_y, gate_up)); // in place
    check_same_bits(rig, d_y, y);
    check_same_bits(rig, gate_up, d_gate_up);
}

static void run_relu2(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), d_y = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols),
                        d_x = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->relu2(&rig->stream, y, x));
    rig_keep(rig, y);
    CHECK_OK(rig->k->relu2_back(&rig->stream, d_x, absent, d_y, x));
    rig_keep(rig, d_x);
    CHECK_OK(rig->k->relu2_back(&rig->stream, x, d_y, d_y, x)); // in place
    check_same_bits(rig, d_y, y);
    check_same_bits(rig, x, d_x);
}

/* In place, and backward from relu's output as well as from its input. */
static void run_relu(struct rig *rig, shape s) {
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), d_y = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor d_x = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->relu_back(&rig->stream, d_x, d_y, x));
    rig_keep(rig, d_x);
    CHECK_OK(rig->k->relu(&rig->stream, x, x));
    rig_keep(rig, x);
    CHECK_OK(rig->k->relu_back(&rig->stream, d_y, d_y, x));
    rig_keep(rig, d_y);
}

static void matches_reference_activations(void **state) {
    (void)state;
    over_shapes(run_swiglu, 1, 2e-6);
    over_shapes(run_relu2, 1, 1e-6);
    over_shapes(run_relu, 1, 0);
}

/* Extreme gates: silu is the gate itself or 0, never NaN. Then non-finite inputs. */
static void run_far(struct rig *rig, shape s) {
    (void)s;
    const float values[] = {-1000, -100, -88, -87, -1e-30f, 0,    1e-30f, 87, 88, 100, 1000, NAN,
                            1,     1,    1,   1,   1,       1.5f, 2,      1,  1,  1,   1,    1};
    const strait_tensor gate_up = rig_act_values(rig, 1, 24, values);
    const strait_tensor y = rig_act_output(rig, 1, 12), d_y = rig_act_output(rig, 1, 12);
    const strait_tensor d_gate_up = rig_act_output(rig, 1, 24);
    CHECK_OK(rig->k->fill(&rig->stream, d_y, 1));
    CHECK_OK(rig->k->swiglu(&rig->stream, y, gate_up));
    CHECK_OK(rig->k->swiglu_back(&rig->stream, d_gate_up, absent, d_y, gate_up));
    rig_keep(rig, y);
    rig_keep(rig, d_gate_up);
}

static void swiglu_survives_extreme_gates(void **state) {
    (void)state;
    check_case(run_far, (shape){0}, 2e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_rmsnorm),
        cmocka_unit_test(matches_reference_rmsnorm_of_wide_rows),
        cmocka_unit_test(rmsnorm_of_zeros_is_zero),
        cmocka_unit_test(matches_reference_rotation),
        cmocka_unit_test(matches_reference_activations),
        cmocka_unit_test(swiglu_survives_extreme_gates),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
