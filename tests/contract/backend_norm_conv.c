/* A norm and the convolution after it as one kernel, compared with the reference loops, and the
 * reference loops with the two kernels one after the other. */
#include "rig.h"

typedef struct inputs {
    strait_tensor x, delta, d_y;
    strait_tensor gain, taps;
    strait_tensor y, sum, rstd, d_x, d_gain, d_taps; // outputs
} inputs;

/* Taps well below 1, as models have them: others would amplify what bf16 rounds off. */
static strait_tensor small_taps(struct rig *rig, int n_taps, int64_t cols) {
    const strait_tensor taps = rig_zeros(rig, n_taps, cols);
    CHECK_OK(rig->k->axpy(&rig->stream, taps, 0.3f, rig_input(rig, n_taps, cols, 5)));
    return taps;
}

/* inner: tokens of a sequence; variant: taps, from 1, and 8: without delta */
static inputs prepare(struct rig *rig, shape s) {
    const int n_taps = s.variant & 7, has_delta = (s.variant & 8) == 0;
    inputs in = {.x = rig_act(rig, s.rows, s.cols, 1),
                 .d_y = rig_act(rig, s.rows, s.cols, 3),
                 .gain = rig_input(rig, 1, s.cols, 4),
                 .taps = small_taps(rig, n_taps, s.cols),
                 .y = rig_act_output(rig, s.rows, s.cols),
                 .rstd = rig_output(rig, s.rows, 1),
                 .d_x = rig_act(rig, s.rows, s.cols, 6),
                 .d_gain = rig_input(rig, 1, s.cols, 7),
                 .d_taps = rig_input(rig, n_taps, s.cols, 8)};
    if (!has_delta) return in;
    in.delta = rig_act(rig, s.rows, s.cols, 2);
    in.sum = rig_act_output(rig, s.rows, s.cols);
    return in;
}

static void keep_all(struct rig *rig, const inputs *in) {
    rig_keep(rig, in->y);
    rig_keep(rig, in->rstd);
    if (in->sum.data != NULL) rig_keep(rig, in->sum);
    rig_keep(rig, in->d_x);
    rig_keep(rig, in->d_gain);
    rig_keep(rig, in->d_taps);
}

static void run_fused(struct rig *rig, shape s) {
    const inputs in = prepare(rig, s);
    const strait_norm_conv_params params = {.gain = in.gain,
                                            .taps = in.taps,
                                            .epsilon = 1e-5f,
                                            .seq_len = s.inner,
                                            .d_gain = in.d_gain,
                                            .d_taps = in.d_taps};
    const strait_tensor x = in.sum.data != NULL ? in.sum : in.x;
    CHECK_OK(
        rig->k->norm_conv->forward(&rig->stream, in.y, in.sum, in.rstd, in.x, in.delta, &params));
    CHECK_OK(rig->k->norm_conv->back(&rig->stream, in.d_x, in.d_y, x, in.rstd, &params));
    keep_all(rig, &in);
}

static void run_apart(struct rig *rig, shape s) {
    const inputs in = prepare(rig, s);
    const strait_tensor b = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor d_b = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor x = in.sum.data != NULL ? in.sum : in.x;
    CHECK_OK(rig->k->rmsnorm(&rig->stream, b, in.sum, in.rstd, in.x, in.delta,
                             (strait_norm_params){.gain = in.gain, .epsilon = 1e-5f}));
    CHECK_OK(rig->k->conv->forward(&rig->stream, in.y, b, in.taps, s.inner));
    CHECK_OK(rig->k->conv->back(&rig->stream, d_b, in.d_taps, in.d_y, b, in.taps, s.inner));
    CHECK_OK(rig->k->rmsnorm_back(&rig->stream, in.d_x, in.d_gain, d_b, x, in.gain, in.rstd));
    keep_all(rig, &in);
}

/* Rows, columns, tokens of a sequence: around a warp's columns, fewer rows than a block takes at a
 * time, and several times as many. */
static const int64_t sizes[][3] = {{1, 8, 1},     {6, 16, 3},     {17, 72, 17},
                                   {40, 264, 20}, {48, 1024, 16}, {2112, 8, 33},
                                   {99, 40, 11},  {80, 2048, 40}, {5280, 16, 480}};

static void matches_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int variant = 1; variant <= 12; variant++)
            if ((variant & 7) >= 1 && (variant & 7) <= STRAIT_CONV_TAPS)
                check_one_of_many(run_fused,
                                  (shape){.rows = sizes[i][0],
                                          .cols = sizes[i][1],
                                          .inner = sizes[i][2],
                                          .variant = variant},
                                  2e-5);
}

static void is_what_two_kernels_compute(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const shape s = {
            .rows = sizes[i][0], .cols = sizes[i][1], .inner = sizes[i][2], .variant = 4};
        size_t n = 0;
        float *apart = rig_results(rig, run_apart, s, &n);
        rig_clear(rig);
        run_fused(rig, s);
        assert_int_equal(rig->n_kept, n);
        for (size_t v = 0; v < n; v++)
            CHECK_NEAR(rig->kept[v], apart[v], 1e-4 * (1 + fabs((double)apart[v])));
        free(apart);
    }
    rig_clear(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(is_what_two_kernels_compute),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
