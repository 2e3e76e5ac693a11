/* A convolution of queries, keys and values and the rotation after it as one kernel, compared with
 * the reference loops of both. */
#include "rig.h"

static const strait_tensor absent = {0};

/* variant: bits 0 to 2: taps, bit 3: with norm, bit 4: with gain; rows: sequences */
static void run(struct rig *rig, shape s) {
    const strait_heads heads = s.heads;
    const int n_taps = s.variant & 7, has_norm = s.variant & 8, has_gain = s.variant & 16;
    const int64_t n = s.rows * heads.seq_len;
    const int64_t cols = (int64_t)(heads.n_query + 2 * heads.n_key) * heads.head_dim;
    strait_conv_rotate_params params = {.rotation = {.heads = heads, .epsilon = 1e-5f}};
    rig_angles(rig, heads, &params.rotation.cos, &params.rotation.sin);
    /* Taps well below 1, as models have them: others would amplify what bf16 rounds off. */
    params.taps = rig_zeros(rig, n_taps, cols);
    CHECK_OK(rig->k->axpy(&rig->stream, params.taps, 0.3f, rig_input(rig, n_taps, cols, 5)));
    if (has_gain) {
        params.rotation.gain = rig_input(rig, 2, heads.head_dim, 2);
        params.d_gain = rig_input(rig, 2, heads.head_dim, 4);
    }
    params.d_taps = rig_input(rig, n_taps, cols, 6);
    const strait_tensor x = rig_act(rig, n, cols, 1), d_y = rig_act(rig, n, cols, 3);
    const strait_tensor y = rig_act_output(rig, n, cols), between = rig_act_output(rig, n, cols);
    const strait_tensor d_x = rig_act_output(rig, n, cols);
    const strait_tensor rstd = has_norm ? rig_output(rig, n, heads.n_query + heads.n_key) : absent;
    CHECK_OK(rig->k->conv_rotate->forward(&rig->stream, y, rstd, between, x, &params));
    rig_keep(rig, y);
    if (has_norm) rig_keep(rig, rstd);
    CHECK_OK(rig->k->conv_rotate->back(&rig->stream, d_x, d_y, x, rstd, &params));
    rig_keep(rig, d_x);
    rig_keep(rig, params.d_taps);
    if (has_gain) rig_keep(rig, params.d_gain);
}

/* Of d_taps in bf16: it sums a few products that may cancel, each with a gradient that was rounded.
 */
static const double cancelled = 4e-2;

/* Heads within a warp, as wide as one, and those that do not fit; sequences shorter than the taps,
 * and rows that several blocks share. */
static void matches_reference(void **state) {
    (void)state;
    static const int groups[][2] = {{1, 1}, {4, 2}};
    static const int dims[] = {8, 16, 32, 64, 80, 128, 256};
    static const int64_t lengths[] = {1, 2, 5, 33};
    static const int variants[] = {1, 4, 9, 11, 12, 28};
    for (size_t g = 0; g < COUNT(groups); g++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (size_t t = 0; t < COUNT(lengths); t++)
                for (size_t v = 0; v < COUNT(variants); v++)
                    check_one_of_many(run,
                                      (shape){.rows = 3,
                                              .variant = variants[v],
                                              .in_bf16 = cancelled,
                                              .heads = {.n_query = groups[g][0],
                                                        .n_key = groups[g][1],
                                                        .head_dim = dims[d],
                                                        .seq_len = lengths[t]}},
                                      5e-5);
}

/* More rows than the gradient has blocks times four, so that blocks have several each. */
static void matches_reference_over_many_rows(void **state) {
    (void)state;
    for (int variant = 4; variant <= 12; variant += 8)
        check_case(run,
                   (shape){.rows = 5,
                           .variant = variant,
                           .in_bf16 = cancelled,
                           .heads = {.n_query = 2, .n_key = 1, .head_dim = 64, .seq_len = 701}},
                   5e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(matches_reference_over_many_rows),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
