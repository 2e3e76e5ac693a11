/* Kernels of trained codecs, compared with the reference loops; and their gradients. */
#include "rig.h"

static const int64_t awkward_rows[] = {1, 6, 130};
static const int64_t awkward_cols[] = {1, 7, 40, 133};

static void over_shapes(rig_case run, double tolerance) {
    for (size_t r = 0; r < COUNT(awkward_rows); r++)
        for (size_t c = 0; c < COUNT(awkward_cols); c++)
            check_one_of_many(run, (shape){.rows = awkward_rows[r], .cols = awkward_cols[c]},
                              tolerance);
    check_case(run, (shape){.rows = 5, .cols = 4104}, tolerance);
}

/* variant: bit 0: y is an activation, bit 1: x is, bit 2: adds to y */
static void run_regroup(struct rig *rig, shape s) {
    const int64_t groups = 3, from = 8 * (s.rows % 2), to = 8 * (s.rows % 3);
    const int64_t pad = (s.cols + 7) / 8 * 8, x_cols = from + groups * s.cols + 8;
    const int64_t y_cols = to + groups * pad;
    const strait_tensor x = s.variant & 2 ? rig_act(rig, s.rows, x_cols, 1)
                                          : rig_input(rig, s.rows, x_cols, 1);
    const strait_tensor y = s.variant & 1 ? rig_act(rig, s.rows, y_cols, 2)
                                          : rig_input(rig, s.rows, y_cols, 2);
    const strait_regroup_params params = {.n_groups = groups,
                                          .to = to,
                                          .to_cols = pad,
                                          .from = from,
                                          .from_cols = s.cols,
                                          .alpha = 0.75f,
                                          .adds = s.variant >> 2};
    CHECK_OK(rig->k->regroup_cols(&rig->stream, y, x, params));
    rig_keep(rig, y);
    const strait_regroup_params back = {
        .n_groups = groups, .to_cols = s.cols, .from = to, .from_cols = pad, .alpha = 1};
    const strait_tensor z = rig_output(rig, s.rows, groups * s.cols);
    CHECK_OK(rig->k->regroup_cols(&rig->stream, z, y, back));
    rig_keep(rig, z);
}

static void regroups_columns(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_one_of_many(
                    run_regroup,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .variant = variant},
                    1e-6);
}

static void run_part(struct rig *rig, shape s) {
    const strait_tensor y = rig_act(rig, s.rows, s.cols, 1), x = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor delta = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor normed = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor rstd = rig_output(rig, s.rows, 1);
    const strait_tensor wider = rig_act(rig, s.rows, s.cols + (s.rows % 2 ? 16 : 3), 3);
    CHECK_OK(rig->k->autoencoder->subtract_norm(&rig->stream, wider, normed, rstd, y, x, 1e-6f));
    rig_keep(rig, wider);
    CHECK_OK(rig->k->autoencoder->subtract_norm(&rig->stream, delta, normed, rstd, y, x, 1e-6f));
    rig_keep(rig, delta);
    rig_keep(rig, normed);
    rig_keep(rig, rstd);
    CHECK_OK(rig->k->autoencoder->subtract_norm(&rig->stream, delta, (strait_tensor){0},
                                                (strait_tensor){0}, x, y, 1e-6f));
    rig_keep(rig, delta);
}

static void subtracts_and_norms(void **state) {
    (void)state;
    over_shapes(run_part, 1e-5);
}

static void run_embed_minus(struct rig *rig, shape s) {
    const strait_tensor table = rig_input(rig, 11, s.cols, 1), x = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(
        rig->k->subspace->embed_minus(&rig->stream, y, table, rig_tokens(rig, s.rows, 11, 3), x));
    rig_keep(rig, y);
}

static void subtracts_from_embedding(void **state) {
    (void)state;
    over_shapes(run_embed_minus, 1e-6);
}

/* Tensors wider than the table keep their other columns. */
static void run_gains(struct rig *rig, shape s) {
    const int64_t more = s.rows % 2 ? 16 : 3;
    const strait_tensor table = rig_input(rig, 11, s.cols, 1), x = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor ids = rig_tokens(rig, s.rows, 11, 3);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor wider = rig_act(rig, s.rows, s.cols + more, 4);
    CHECK_OK(rig->k->token_gates->apply(&rig->stream, y, x, table, ids));
    CHECK_OK(rig->k->token_gates->apply(&rig->stream, wider, x, table, ids));
    rig_keep(rig, y);
    rig_keep(rig, wider);
    CHECK_OK(rig->k->token_gates->apply(&rig->stream, wider, wider, table, ids));
    rig_keep(rig, wider);
    const strait_tensor d_y = rig_act(rig, s.rows, s.cols, 5);
    const strait_tensor d_rows = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->token_gates->apply_back(&rig->stream, y, d_rows, d_y, x, table, ids));
    rig_keep(rig, y);
    rig_keep(rig, d_rows);
    CHECK_OK(rig->k->token_gates->apply_back(&rig->stream, d_y, x, d_y, x, table, ids));
    rig_keep(rig, d_y);
    rig_keep(rig, x);
}

static void applies_token_gates(void **state) {
    (void)state;
    over_shapes(run_gains, 1e-6);
}

/* Columns outside the range are not written. */
static void run_silu_cols(struct rig *rig, shape s) {
    const int64_t first = s.rows % 2 ? 16 : 5, all = first + s.cols + (s.rows % 2 ? 0 : 2);
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), y = rig_act(rig, s.rows, all, 2);
    const strait_tensor d_x = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->autoencoder->silu_cols_back(&rig->stream, d_x, y, x, first));
    CHECK_OK(rig->k->autoencoder->silu_cols(&rig->stream, y, x, first, (strait_tensor){0}));
    rig_keep(rig, y);
    const int64_t next = s.rows % 2 ? 8 : 3;
    const strait_tensor wide = rig_input(rig, s.rows, next, 3);
    const strait_tensor alike = rig_act(rig, s.rows, next, 4);
    const strait_tensor more = rig_act(rig, s.rows, all + next, 5);
    CHECK_OK(rig->k->autoencoder->silu_cols(&rig->stream, more, x, first, wide));
    rig_keep(rig, more);
    CHECK_OK(rig->k->autoencoder->silu_cols(&rig->stream, more, x, first, alike));
    rig_keep(rig, more);
    rig_keep(rig, d_x);
}

static void writes_silu_into_columns(void **state) {
    (void)state;
    over_shapes(run_silu_cols, 2e-6);
}

/* variant: whether there is a `plus` tensor */
static void run_normed_silu(struct rig *rig, shape s) {
    const int64_t wide = s.cols == 40 ? 2312
                                      : 3 * s.cols; // also more than a warp keeps in registers
    const strait_tensor rstd = rig_input(rig, s.rows, 1, 4);
    const strait_norm_silu_grads at = {.d_a = rig_act_output(rig, s.rows, s.cols),
                                       .scaled = rig_act_output(rig, s.rows, s.cols),
                                       .d_y = rig_act_output(rig, s.rows, wide),
                                       .d_h = rig_act(rig, s.rows, s.cols, 1),
                                       .a = rig_act(rig, s.rows, s.cols, 2),
                                       .rstd = rstd,
                                       .n = rig_act(rig, s.rows, wide, 5),
                                       .plus = s.variant ? rig_act(rig, s.rows, wide, 3)
                                                         : (strait_tensor){0}};
    CHECK_OK(rig->k->autoencoder->norm_silu_back(&rig->stream, &at));
    rig_keep(rig, at.d_a);
    rig_keep(rig, at.scaled);
    rig_keep(rig, at.d_y);
}

static void differentiates_norm_and_silu(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_case(
                    run_normed_silu,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .variant = variant},
                    1e-5);
}

/* inner: tokens per sequence; columns beyond keep are NaN and must not be read */
static void run_recall(struct rig *rig, shape s) {
    const int64_t keep = s.cols, cols = (keep + 7) / 8 * 8, taps = s.inner;
    const strait_window_params params = {keep, taps, s.heads.seq_len, 1e-6f};
    const strait_tensor codes = rig_input(rig, s.rows, keep, 1), z = rig_output(rig, s.rows, cols);
    CHECK_OK(rig->k->regroup_cols(
        &rig->stream, z, codes,
        (strait_regroup_params){.n_groups = 1, .to_cols = keep, .from_cols = keep, .alpha = 1}));
    const int64_t beside = s.rows % 2 ? 9 : 16; // with and without 16-byte pieces
    const strait_tensor both = rig_act(rig, s.rows, taps * cols + beside, 2);
    const strait_tensor normeds = rig_act_output(rig, s.rows, taps * cols);
    const strait_tensor d_both = rig_act(rig, s.rows, taps * cols + beside, 3);
    const strait_tensor d_normeds = rig_act(rig, s.rows, taps * cols, 4);
    const strait_tensor rstd = rig_output(rig, s.rows, 1), d_z = rig_output(rig, s.rows, cols);
    CHECK_OK(rig->k->autoencoder->window_norm(&rig->stream, both, normeds, rstd, z, params));
    CHECK_OK(rig->k->autoencoder->window_norm_back(&rig->stream, d_z, d_both, d_normeds, z, rstd,
                                                   params));
    rig_keep(rig, both);
    rig_keep(rig, normeds);
    rig_keep(rig, rstd);
    rig_keep(rig, d_z);
}

static void builds_normed_windows(void **state) {
    (void)state;
    static const shape shapes[] = {{.rows = 1, .cols = 5, .inner = 4, .heads = {.seq_len = 1}},
                                   {.rows = 12, .cols = 31, .inner = 4, .heads = {.seq_len = 6}},
                                   {.rows = 12, .cols = 8, .inner = 1, .heads = {.seq_len = 3}},
                                   {.rows = 70, .cols = 63, .inner = 5, .heads = {.seq_len = 35}},
                                   {.rows = 9, .cols = 100, .inner = 12, .heads = {.seq_len = 9}},
                                   {.rows = 6, .cols = 250, .inner = 3, .heads = {.seq_len = 3}}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        check_case(run_recall, shapes[i], 1e-5);
}

struct recall_case {
    strait_tensor both, normeds, rstd, z;
    strait_window_params params;
};

static void recall_forward(struct rig *rig, void *arg) {
    const struct recall_case *c = arg;
    CHECK_OK(rig->k->autoencoder->window_norm(&rig->stream, c->both, c->normeds, c->rstd, c->z,
                                              c->params));
}

struct gain_case {
    strait_tensor y, x, table, ids;
};

static void gain_forward(struct rig *rig, void *arg) {
    const struct gain_case *c = arg;
    CHECK_OK(rig->k->token_gates->apply(&rig->stream, c->y, c->x, c->table, c->ids));
}

static void token_gate_gradients_match_differences(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    struct gain_case c = {rig_output(rig, 9, 6), rig_input(rig, 9, 6, 1), rig_input(rig, 4, 6, 2),
                          rig_tokens(rig, 9, 4, 3)};
    const gradient g = {rig, gain_forward, &c, {c.y}, {rig_input(rig, 9, 6, 4)}};
    const strait_tensor d_x = rig_output(rig, 9, 6), d_rows = rig_output(rig, 9, 6);
    const strait_tensor d_table = rig_zeros(rig, 4, 6);
    CHECK_OK(rig->k->token_gates->apply_back(&rig->stream, d_x, d_rows, g.d_outputs[0], c.x,
                                             c.table, c.ids));
    CHECK_OK(rig->k->embed_back(&rig->stream, d_table, d_rows, c.ids));
    check_gradient(&g, c.x, d_x, "gain of x");
    check_gradient(&g, c.table, d_table, "gain's table");
    rig_check(rig);
}

static void window_gradient_matches_differences(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    struct recall_case c = {rig_zeros(rig, 8, 24),
                            rig_output(rig, 8, 24),
                            rig_output(rig, 8, 1),
                            rig_input(rig, 8, 8, 1),
                            {8, 3, 4, 1e-6f}};
    const gradient g = {rig,
                        recall_forward,
                        &c,
                        {c.both, c.normeds},
                        {rig_input(rig, 8, 24, 2), rig_input(rig, 8, 24, 3)}};
    const strait_tensor d_z = rig_output(rig, 8, 8);
    recall_forward(rig, &c);
    CHECK_OK(rig->k->autoencoder->window_norm_back(&rig->stream, d_z, g.d_outputs[0],
                                                   g.d_outputs[1], c.z, c.rstd, c.params));
    check_gradient(&g, c.z, d_z, "recall");
    rig_check(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regroups_columns),
        cmocka_unit_test(subtracts_and_norms),
        cmocka_unit_test(subtracts_from_embedding),
        cmocka_unit_test(applies_token_gates),
        cmocka_unit_test(token_gate_gradients_match_differences),
        cmocka_unit_test(writes_silu_into_columns),
        cmocka_unit_test(differentiates_norm_and_silu),
        cmocka_unit_test(builds_normed_windows),
        cmocka_unit_test(window_gradient_matches_differences),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
