/* Tables of rows by token id that share ids: sums of x, delta and rows, and gradients with lists of
 * positions, compared with the reference loops. */
#include "rig.h"

static const strait_tensor absent = {0};

/* inner: rows of the table; variant: columns before those of the table, and 64: with delta, and
 * 128: in place */
static void run_add(struct rig *rig, shape s) {
    const int64_t first = s.variant & 63, width = s.cols + 2 * first;
    const strait_tensor ids = rig_tokens(rig, s.rows, s.inner, 3);
    const strait_tensor table = rig_act(rig, s.inner, s.cols, 1),
                        x = rig_act(rig, s.rows, width, 2);
    const strait_tensor delta = (s.variant & 64) != 0 ? rig_act(rig, s.rows, width, 4) : absent;
    const strait_tensor y = (s.variant & 128) != 0 ? x : rig_act(rig, s.rows, width, 5);
    CHECK_OK(rig->k->token_tables->add(&rig->stream, y, x, delta, table, ids, first));
    rig_keep(rig, y);
}

/* Two tables with one set of lists, the second of other columns. */
static void run_back(struct rig *rig, shape s) {
    const int64_t first = s.variant & 63, width = s.cols + 2 * first;
    const strait_tensor ids = rig_tokens(rig, s.rows, s.inner, 3);
    const strait_tensor d_y = rig_act(rig, s.rows, width, 2);
    strait_tensor lists = rig_output(rig, 1, strait_token_list_cols(s.rows, s.inner));
    lists.dtype = STRAIT_I32;
    const strait_tensor d_one = rig_input(rig, s.inner, s.cols, 6);
    const strait_tensor d_two = rig_input(rig, s.inner, width, 7);
    CHECK_OK(rig->k->token_tables->list(&rig->stream, lists, ids, s.inner));
    CHECK_OK(rig->k->token_tables->back(&rig->stream, d_one, d_y, first, ids, lists));
    CHECK_OK(rig->k->token_tables->back(&rig->stream, d_two, d_y, 0, ids, lists));
    rig_keep(rig, d_one);
    rig_keep(rig, d_two);
}

/* The same through embed_back, which makes its own lists. */
static void run_apart(struct rig *rig, shape s) {
    const int64_t first = s.variant & 63, width = s.cols + 2 * first;
    const strait_tensor ids = rig_tokens(rig, s.rows, s.inner, 3);
    const strait_tensor d_y = rig_act(rig, s.rows, width, 2);
    const strait_tensor cut = rig_act_output(rig, s.rows, s.cols);
    const strait_tensor d_one = rig_input(rig, s.inner, s.cols, 6);
    const strait_tensor d_two = rig_input(rig, s.inner, width, 7);
    CHECK_OK(rig->k->cut_cols(&rig->stream, cut, d_y, first));
    CHECK_OK(rig->k->embed_back(&rig->stream, d_one, cut, ids));
    CHECK_OK(rig->k->embed_back(&rig->stream, d_two, d_y, ids));
    rig_keep(rig, d_one);
    rig_keep(rig, d_two);
}

/* Rows, columns, rows of the table: tokens that occur once, never, and in many pieces. */
static const int64_t sizes[][3] = {{1, 1, 1},     {7, 5, 3},        {64, 8, 2},       {130, 24, 1},
                                   {500, 64, 11}, {1000, 256, 700}, {300, 1024, 4000}};

static void over_sizes(rig_case run, const int *variants, int n_variants, double tolerance) {
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int v = 0; v < n_variants; v++)
            check_one_of_many(run,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variants[v]},
                              tolerance);
}

static void adds_rows_to_a_sum(void **state) {
    (void)state;
    static const int variants[] = {0, 64, 128, 192, 8 + 128, 3 + 64};
    over_sizes(run_add, variants, COUNT(variants), 1e-6);
}

static void adds_gradients_by_lists(void **state) {
    (void)state;
    static const int variants[] = {0, 8, 3};
    over_sizes(run_back, variants, COUNT(variants), 1e-5);
}

/* The bits of the same sums, on every device. */
static void compare_with_own_lists(void) {
    struct rig *rig = rig_under_test();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const shape s = {
            .rows = sizes[i][0], .cols = sizes[i][1], .inner = sizes[i][2], .variant = 8};
        size_t n = 0;
        float *apart = rig_results(rig, run_apart, s, &n);
        rig_clear(rig);
        run_back(rig, s);
        assert_int_equal(rig->n_kept, n);
        assert_memory_equal(rig->kept, apart, n * sizeof *apart);
        free(apart);
    }
}

static void has_the_bits_of_embed_back(void **state) {
    (void)state;
    on_every_device(compare_with_own_lists);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_rows_to_a_sum),
        cmocka_unit_test(adds_gradients_by_lists),
        cmocka_unit_test(has_the_bits_of_embed_back),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
