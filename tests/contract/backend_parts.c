/* The pieces that codecs of devices are made of, against the plain loops; and gradients of them. */
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

/* variant: bit 0 y is of the stream's type, bit 1 x is, bit 2 adds */
static void run_regroup(struct rig *rig, shape s) {
    const int64_t groups = 3, from = 8 * (s.rows % 2), to = 8 * (s.rows % 3);
    const int64_t pad = (s.cols + 7) / 8 * 8, x_cols = from + groups * s.cols + 8;
    const int64_t y_cols = to + groups * pad;
    const strait_tensor x = s.variant & 2 ? rig_act(rig, s.rows, x_cols, 1)
                                          : rig_input(rig, s.rows, x_cols, 1);
    const strait_tensor y = s.variant & 1 ? rig_act(rig, s.rows, y_cols, 2)
                                          : rig_input(rig, s.rows, y_cols, 2);
    const strait_regroup_how how = {.n_groups = groups,
                                    .to = to,
                                    .to_cols = pad,
                                    .from = from,
                                    .from_cols = s.cols,
                                    .alpha = 0.75f,
                                    .adds = s.variant >> 2};
    CHECK_OK(rig->k->regroup_cols(&rig->stream, y, x, how));
    rig_keep(rig, y);
    const strait_regroup_how back = {
        .n_groups = groups, .to_cols = s.cols, .from = to, .from_cols = pad, .alpha = 1};
    const strait_tensor z = rig_output(rig, s.rows, groups * s.cols);
    CHECK_OK(rig->k->regroup_cols(&rig->stream, z, y, back));
    rig_keep(rig, z);
}

static void regrouped_columns(void **state) {
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
    CHECK_OK(rig->k->part_rows(&rig->stream, wider, normed, rstd, y, x, 1e-6f));
    rig_keep(rig, wider);
    CHECK_OK(rig->k->part_rows(&rig->stream, delta, normed, rstd, y, x, 1e-6f));
    rig_keep(rig, delta);
    rig_keep(rig, normed);
    rig_keep(rig, rstd);
    CHECK_OK(rig->k->part_rows(&rig->stream, delta, (strait_tensor){0}, (strait_tensor){0}, x, y,
                               1e-6f));
    rig_keep(rig, delta);
}

static void parted_rows(void **state) {
    (void)state;
    over_shapes(run_part, 1e-5);
}

static void run_embed_minus(struct rig *rig, shape s) {
    const strait_tensor table = rig_input(rig, 11, s.cols, 1), x = rig_act(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->embed_minus(&rig->stream, y, table, rig_tokens(rig, s.rows, 11, 3), x));
    rig_keep(rig, y);
}

static void embedded_less_the_stream(void **state) {
    (void)state;
    over_shapes(run_embed_minus, 1e-6);
}

/* Columns beside those of x are left alone. */
static void run_silu_cols(struct rig *rig, shape s) {
    const int64_t first = s.rows % 2 ? 16 : 5, all = first + s.cols + (s.rows % 2 ? 0 : 2);
    const strait_tensor x = rig_act(rig, s.rows, s.cols, 1), y = rig_act(rig, s.rows, all, 2);
    const strait_tensor d_x = rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->silu_cols_back(&rig->stream, d_x, y, x, first));
    CHECK_OK(rig->k->silu_cols(&rig->stream, y, x, first, (strait_tensor){0}));
    rig_keep(rig, y);
    const int64_t behind = s.rows % 2 ? 8 : 3;
    const strait_tensor wide = rig_input(rig, s.rows, behind, 3);
    const strait_tensor alike = rig_act(rig, s.rows, behind, 4);
    const strait_tensor more = rig_act(rig, s.rows, all + behind, 5);
    CHECK_OK(rig->k->silu_cols(&rig->stream, more, x, first, wide));
    rig_keep(rig, more);
    CHECK_OK(rig->k->silu_cols(&rig->stream, more, x, first, alike));
    rig_keep(rig, more);
    rig_keep(rig, d_x);
}

static void silu_columns(void **state) {
    (void)state;
    over_shapes(run_silu_cols, 2e-6);
}

/* inner: columns before */
static void run_normed_silu(struct rig *rig, shape s) {
    const int64_t wide = s.cols == 40 ? 2312 : 3 * s.cols; // more than a warp holds, too
    const strait_tensor rstd = rig_input(rig, s.rows, 1, 4);
    const strait_normed_silu at = {.d_a = rig_act_output(rig, s.rows, s.cols),
                                   .scaled = rig_act_output(rig, s.rows, s.inner + s.cols),
                                   .d_y = rig_act_output(rig, s.rows, wide),
                                   .d_h = rig_act(rig, s.rows, s.cols + s.inner, 1),
                                   .a = rig_act(rig, s.rows, s.cols, 2),
                                   .rstd = rstd,
                                   .before = s.inner > 0 ? rig_act(rig, s.rows, s.inner, 3)
                                                         : (strait_tensor){0},
                                   .n = rig_act(rig, s.rows, wide, 5)};
    CHECK_OK(rig->k->normed_silu_back(&rig->stream, &at));
    rig_keep(rig, at.d_a);
    rig_keep(rig, at.scaled);
    rig_keep(rig, at.d_y);
}

static void normed_silu(void **state) {
    (void)state;
    static const int64_t before[] = {0, 5, 32};
    for (size_t b = 0; b < COUNT(before); b++)
        for (size_t r = 0; r < COUNT(awkward_rows); r++)
            for (size_t c = 0; c < COUNT(awkward_cols); c++)
                check_case(
                    run_normed_silu,
                    (shape){.rows = awkward_rows[r], .cols = awkward_cols[c], .inner = before[b]},
                    1e-5);
}

/* The same bytes, whether the largest of each row are known or not. */
static void pack_with_largest(struct rig *rig, strait_tensor x, strait_recall_how how) {
    const int64_t bytes = 4 + x.rows * ((how.keep + 2) / 2);
    strait_pack_how pack = {.cols = how.keep, .is_stochastic = x.rows % 2 != 0};
    strait_tensor packed[2];
    unsigned char *read[2];
    for (int i = 0; i < 2; i++, pack.largest = how.largest) {
        packed[i] = rig_bytes(rig, bytes);
        CHECK_OK(rig->k->pack_octaves(&rig->stream, packed[i], (strait_tensor){0}, x, pack));
        read[i] = malloc((size_t)bytes);
        assert_non_null(read[i]);
        CHECK_OK(rig->be->ops->download(&rig->stream, read[i], packed[i].data, (size_t)bytes));
    }
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    assert_memory_equal(read[0], read[1], (size_t)bytes);
    free(read[0]);
    free(read[1]);
}

/* inner: codes; what is beyond keep is no number, and is not looked at */
static void run_recall(struct rig *rig, shape s) {
    const int64_t keep = s.cols, cols = (keep + 7) / 8 * 8, taps = s.inner;
    strait_recall_how how = {
        .keep = keep, .taps = taps, .seq_len = s.heads.seq_len, .epsilon = 1e-6f};
    const strait_tensor codes = rig_input(rig, s.rows, keep, 1), z = rig_output(rig, s.rows, cols);
    CHECK_OK(rig->k->regroup_cols(
        &rig->stream, z, codes,
        (strait_regroup_how){.n_groups = 1, .to_cols = keep, .from_cols = keep, .alpha = 1}));
    const int64_t beside = s.rows % 2 ? 9 : 16; // in pieces or not
    const strait_tensor both = rig_act(rig, s.rows, taps * cols + beside, 2);
    const strait_tensor normeds = rig_act_output(rig, s.rows, taps * cols);
    const strait_tensor d_both = rig_act(rig, s.rows, taps * cols + beside, 3);
    const strait_tensor d_normeds = rig_act(rig, s.rows, taps * cols, 4);
    const strait_tensor rstd = rig_output(rig, s.rows, 1), d_z = rig_output(rig, s.rows, cols);
    CHECK_OK(rig->k->recall(&rig->stream, both, normeds, rstd, z, how));
    CHECK_OK(rig->k->recall_back(&rig->stream, d_z, d_both, d_normeds, z, rstd, how));
    rig_keep(rig, d_z);
    how.beside = rig_act(rig, s.rows, cols + (s.rows % 4 ? 8 : 3), 5);
    how.largest = rig_output(rig, s.rows, 1);
    CHECK_OK(rig->k->recall_back(&rig->stream, d_z, d_both, d_normeds, z, rstd, how));
    rig_keep(rig, how.largest);
    pack_with_largest(rig, d_z, how);
    rig_keep(rig, both);
    rig_keep(rig, normeds);
    rig_keep(rig, rstd);
    rig_keep(rig, d_z);
}

static void recalled_codes(void **state) {
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

/* cols: keep, inner: the hidden layer's width */
static void run_hidden(struct rig *rig, shape s) {
    const int64_t cols = (s.cols + 7) / 8 * 8, taps = s.variant, wide = taps * cols;
    strait_recall_how how = {
        .keep = s.cols, .taps = taps, .seq_len = s.heads.seq_len, .epsilon = 1e-6f};
    strait_hidden at = {.both = rig_act_output(rig, s.rows, wide + s.inner),
                        .normeds = rig_act_output(rig, s.rows, wide),
                        .rstd = rig_output(rig, s.rows, 1),
                        .a = rig_act_output(rig, s.rows, s.inner),
                        .z = rig_input(rig, s.rows, cols, 1),
                        .v = rig_act(rig, s.inner, wide, 2)};
    const strait_tensor d_a = rig_act_output(rig, s.rows, s.inner);
    CHECK_OK(rig->k->hidden(&rig->stream, &at, how));
    rig_keep(rig, at.a);
    at.packed = rig_bytes(rig, 4 + s.rows * ((s.cols + 2) / 2));
    at.stats = rig_zeros(rig, s.rows, 3);
    at.is_stochastic = s.rows % 2 != 0;
    CHECK_OK(rig->k->pack_octaves(
        &rig->stream, at.packed, (strait_tensor){0}, rig_input(rig, s.rows, cols, 6),
        (strait_pack_how){.is_stochastic = at.is_stochastic, .cols = s.cols}));
    CHECK_OK(rig->k->hidden(&rig->stream, &at, how));
    rig_keep(rig, at.stats);
    strait_hidden_back back = {.d_a = d_a,
                               .d_z = rig_output(rig, s.rows, cols),
                               .d_normeds = rig_act_output(rig, s.rows, wide),
                               .d_both = rig_act(rig, s.rows, wide + s.inner, 3),
                               .a = rig_act(rig, s.rows, s.inner, 4),
                               .v = at.v,
                               .z = at.z,
                               .rstd = at.rstd};
    CHECK_OK(rig->k->hidden_back(&rig->stream, &back, how));
    rig_keep(rig, back.d_z);
    how.beside = rig_act(rig, s.rows, cols + 16, 7);
    how.largest = rig_output(rig, s.rows, 1);
    CHECK_OK(rig->k->hidden_back(&rig->stream, &back, how));
    rig_keep(rig, back.d_z);
    rig_keep(rig, how.largest);
    rig_keep(rig, at.both);
    rig_keep(rig, at.normeds);
    rig_keep(rig, at.rstd);
    rig_keep(rig, at.a);
    rig_keep(rig, d_a);
}

static void hidden_layer(void **state) {
    (void)state;
    static const shape shapes[] = {
        {.rows = 6, .cols = 5, .inner = 9, .variant = 3, .heads = {.seq_len = 3}},
        {.rows = 200, .cols = 63, .inner = 384, .variant = 4, .heads = {.seq_len = 50}},
        {.rows = 96, .cols = 31, .inner = 128, .variant = 4, .heads = {.seq_len = 48}},
        {.rows = 97, .cols = 64, .inner = 128, .variant = 2, .heads = {.seq_len = 97}},
        {.rows = 33, .cols = 8, .inner = 256, .variant = 32, .heads = {.seq_len = 11}}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        check_case(run_hidden, shapes[i], 1e-5);
}

/* inner: columns of the product; x from keep on is not said, so that it is told before */
static void run_restore_product(struct rig *rig, shape s) {
    const int64_t cols = (s.cols + 7) / 8 * 8;
    const strait_pack_how how = {.is_stochastic = s.variant, .cols = s.cols};
    const strait_tensor packed = rig_bytes(rig, 4 + s.rows * ((s.cols + 2) / 2));
    const strait_tensor x = rig_act_output(rig, s.rows, cols), stats = rig_zeros(rig, s.rows, 3);
    const strait_tensor y = rig_act_output(rig, s.rows, s.inner);
    CHECK_OK(rig->k->fill(&rig->stream, x, 0.0f));
    CHECK_OK(rig->k->pack_octaves(&rig->stream, packed, (strait_tensor){0},
                                  rig_input(rig, s.rows, cols, 1), how));
    CHECK_OK(rig->k->restore_product(&rig->stream, y, x, stats, packed,
                                     rig_act(rig, cols, s.inner, 2), how));
    rig_keep(rig, x);
    rig_keep(rig, y);
    rig_keep(rig, stats);
}

static void restored_products(void **state) {
    (void)state;
    static const shape shapes[] = {{.rows = 7, .cols = 5, .inner = 3},
                                   {.rows = 200, .cols = 63, .inner = 320, .variant = 1},
                                   {.rows = 97, .cols = 31, .inner = 128},
                                   {.rows = 96, .cols = 64, .inner = 512, .variant = 1},
                                   {.rows = 5, .cols = 70, .inner = 64}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        check_case(run_restore_product, shapes[i], 1e-5);
}

/* cols: of the code, inner: of b, variant: before both */
static void run_encode(struct rig *rig, shape s) {
    const int64_t wide = s.variant + s.inner + s.cols;
    const strait_tensor seen = rig_act(rig, s.rows, wide, 1), u = rig_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->encode(&rig->stream, u, seen, rig_act(rig, s.rows, s.inner, 2),
                            rig_input(rig, s.rows, s.cols, 3), rig_act(rig, s.cols, wide, 4)));
    rig_keep(rig, seen);
    rig_keep(rig, u);
}

static void encoded_rows(void **state) {
    (void)state;
    static const shape shapes[] = {{.rows = 5, .cols = 3, .inner = 9, .variant = 7},
                                   {.rows = 200, .cols = 64, .inner = 128, .variant = 448},
                                   {.rows = 96, .cols = 64, .inner = 64, .variant = 128},
                                   {.rows = 97, .cols = 64, .inner = 192, .variant = 0}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        check_case(run_encode, shapes[i], 1e-5);
}

struct recall_case {
    strait_tensor both, normeds, rstd, z;
    strait_recall_how how;
};

static void recall_forward(struct rig *rig, void *arg) {
    const struct recall_case *c = arg;
    CHECK_OK(rig->k->recall(&rig->stream, c->both, c->normeds, c->rstd, c->z, c->how));
}

static void recall_has_its_gradient(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    struct recall_case c = {rig_zeros(rig, 8, 24),
                            rig_output(rig, 8, 24),
                            rig_output(rig, 8, 1),
                            rig_input(rig, 8, 8, 1),
                            {.keep = 8, .taps = 3, .seq_len = 4, .epsilon = 1e-6f}};
    const gradient g = {rig,
                        recall_forward,
                        &c,
                        {c.both, c.normeds},
                        {rig_input(rig, 8, 24, 2), rig_input(rig, 8, 24, 3)}};
    const strait_tensor d_z = rig_output(rig, 8, 8);
    recall_forward(rig, &c);
    CHECK_OK(
        rig->k->recall_back(&rig->stream, d_z, g.d_outputs[0], g.d_outputs[1], c.z, c.rstd, c.how));
    check_gradient(&g, c.z, d_z, "recall");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regrouped_columns),
        cmocka_unit_test(parted_rows),
        cmocka_unit_test(embedded_less_the_stream),
        cmocka_unit_test(silu_columns),
        cmocka_unit_test(normed_silu),
        cmocka_unit_test(recalled_codes),
        cmocka_unit_test(recall_has_its_gradient),
        cmocka_unit_test(hidden_layer),
        cmocka_unit_test(restored_products),
        cmocka_unit_test(encoded_rows),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
