/* Elementwise kernels, matrix products, norms of whole tensors and embedding, compared with the
 * reference loops. */
#include "rig.h"

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
    const strait_tensor a = rig_input(rig, s.rows, s.cols, 1);
    const strait_tensor b = rig_input(rig, s.rows, s.cols, 2);
    const strait_tensor y = rig_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->fill(&rig->stream, y, 1.25f));
    rig_keep(rig, y);
    CHECK_OK(rig->k->add(&rig->stream, y, a, b));
    rig_keep(rig, y);
    CHECK_OK(rig->k->add(&rig->stream, y, y, b));
    rig_keep(rig, y);
    CHECK_OK(rig->k->axpy(&rig->stream, y, -0.37f, a));
    rig_keep(rig, y);
    CHECK_OK(rig->k->lerp(&rig->stream, y, b, 0.3f));
    rig_keep(rig, y);
    CHECK_OK(rig->k->cast(&rig->stream, y, a));
    rig_keep(rig, y);
    strait_tensor side = rig_output(rig, s.rows, s.cols);
    side.dtype = STRAIT_BF16;
    CHECK_OK(rig->k->cast(&rig->stream, side, b));
    CHECK_OK(rig->k->cast(&rig->stream, y, side));
    rig_keep(rig, y);
}

static void matches_reference_elementwise(void **state) {
    (void)state;
    over_shapes(run_elementwise, 1e-6);
}

static void run_cast_edges(struct rig *rig, shape s) {
    (void)s;
    const float values[] = {0.0f,       -0.0f,       1.0f,          1.00390625f, 1.01171875f,
                            INFINITY,   -INFINITY,   3.4028235e38f, 1e-40f,      NAN,
                            0x1.fffp0f, -0x1.fefp0f, 0x1.008p3f,    0x1.018p3f,  0x1.0080002p3f};
    strait_tensor side = rig_output(rig, 1, COUNT(values));
    const strait_tensor y = rig_output(rig, 1, COUNT(values));
    side.dtype = STRAIT_BF16;
    CHECK_OK(rig->k->cast(&rig->stream, side, rig_values(rig, 1, COUNT(values), values)));
    CHECK_OK(rig->k->cast(&rig->stream, y, side));
    rig_keep(rig, y);
}

static void bf16_rounds_half_to_even(void **state) {
    (void)state;
    check_case(run_cast_edges, (shape){0}, 0);
    struct rig *rig = reference_rig();
    run_cast_edges(rig, (shape){0});
    const float *kept = rig->kept;
    CHECK_NEAR(kept[3], 1.0, 0);      // half way to 1.0078125: rounds down to even
    CHECK_NEAR(kept[4], 1.015625, 0); // half way: rounds up to even
    CHECK(isinf(kept[5]) && kept[5] > 0 && isinf(kept[6]) && kept[6] < 0);
    CHECK(isinf(kept[7]));
    CHECK(isnan(kept[9]));
    const strait_tensor ints = rig_tokens(rig, 4, 9, 1), y = rig_output(rig, 4, 1);
    CHECK_FAILS(rig->k->cast(&rig->stream, y, ints), STRAIT_ENOTSUP, "bf16");
    rig_check(rig);
}

/* variant: bit 0: transposes a, bit 1: transposes b, bit 2: scales and adds to y */
static void run_matmul(struct rig *rig, shape s) {
    const int ta = s.variant & 1, tb = s.variant >> 1 & 1, adds = s.variant >> 2 & 1;
    const strait_tensor a = ta ? rig_input(rig, s.inner, s.rows, 1)
                               : rig_input(rig, s.rows, s.inner, 1);
    const strait_tensor b = tb ? rig_input(rig, s.cols, s.inner, 2)
                               : rig_input(rig, s.inner, s.cols, 2);
    const strait_tensor y = adds ? rig_input(rig, s.rows, s.cols, 3)
                                 : rig_output(rig, s.rows, s.cols);
    const strait_matmul_params params = {.transpose_a = ta,
                                         .transpose_b = tb,
                                         .alpha = adds ? -0.7f : 1.0f,
                                         .beta = adds ? 0.5f : 0.0f};
    CHECK_OK(rig->k->matmul(&rig->stream, y, a, b, params));
    rig_keep(rig, y);
}

/* Rows, columns and inner size; each runs with every variant of a product. */
static void check_products(const int64_t sizes[][3], size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int variant = 0; variant < 8; variant++)
            check_one_of_many(run_matmul,
                              (shape){.rows = sizes[i][0],
                                      .cols = sizes[i][1],
                                      .inner = sizes[i][2],
                                      .variant = variant},
                              1e-5);
}

static void matches_reference_matmul(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {1, 1, 1},    {1, 133, 64},  {1, 700, 301}, {3, 7, 5},      {17, 129, 1},  {129, 17, 133},
        {133, 1, 17}, {64, 64, 64},  {2, 300, 3},   {8, 33, 257},   {129, 1, 129}, {65, 96, 200},
        {300, 40, 9}, {40, 520, 33}, {5, 3, 1100},  {257, 260, 300}};
    check_products(sizes, COUNT(sizes));
}

/* Larger than what the cpu packs at once: several chunks of rows, columns and depth. */
static void matches_reference_matmul_of_many_chunks(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{5, 530, 2100}, {1030, 13, 2049}, {9, 530, 2048}};
    check_products(sizes, COUNT(sizes));
}

static void run_norms(struct rig *rig, shape s) {
    const strait_tensor x = rig_input(rig, s.rows, s.cols, 4), y = rig_output(rig, s.rows, s.cols);
    const strait_tensor total = rig_output(rig, 1, 1);
    CHECK_OK(rig->k->sum_squares(&rig->stream, total, x));
    rig_keep(rig, total);
    CHECK_OK(rig->k->normalise(&rig->stream, y, x, total, 1e-3f));
    rig_keep(rig, y);
    CHECK_OK(rig->k->normalise(&rig->stream, x, x, total, 1e-3f));
    rig_keep(rig, x);
}

static void matches_reference_norms(void **state) {
    (void)state;
    over_shapes(run_norms, 1e-6);
}

/* A million small squares next to a large one: a sum in f32 would lose them. */
static void sum_of_squares_keeps_small_addends(void **state) {
    (void)state;
    const int64_t n = 1 << 20;
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = 1;
    values[0] = 4096; // its square is 2^24: adding 1 in f32 changes nothing
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        const strait_tensor x = rig_values(&rig, 1024, n / 1024, values);
        const strait_tensor total = rig_output(&rig, 1, 1);
        CHECK_OK(rig.k->sum_squares(&rig.stream, total, x));
        rig_keep(&rig, total);
        CHECK_NEAR(rig.kept[0], 16777216.0 + 1048575.0, 2);
        rig_close(&rig);
    }
    free(values);
}

/* variant: bit 0: an f32 table, bit 1: f32 rows; otherwise they are activations */
static void run_embed(struct rig *rig, shape s) {
    const int64_t vocab = s.inner;
    const strait_tensor table = s.variant & 1 ? rig_input(rig, vocab, s.cols, 5)
                                              : rig_act(rig, vocab, s.cols, 5);
    const strait_tensor tokens = rig_tokens(rig, s.rows, vocab, 6);
    const strait_tensor y = s.variant & 2 ? rig_output(rig, s.rows, s.cols)
                                          : rig_act_output(rig, s.rows, s.cols);
    CHECK_OK(rig->k->embed(&rig->stream, y, table, tokens));
    rig_keep(rig, y);
    const strait_tensor d_table = rig_input(rig, vocab, s.cols, 7);
    CHECK_OK(rig->k->embed_back(&rig->stream, d_table, y, tokens));
    rig_keep(rig, d_table);
}

static void matches_reference_embedding(void **state) {
    (void)state;
    static const int64_t vocabs[] = {1, 11, 300};
    for (size_t r = 0; r < COUNT(awkward_rows); r++)
        for (size_t c = 0; c < COUNT(awkward_cols); c++)
            for (size_t v = 0; v < COUNT(vocabs); v++)
                check_case(run_embed,
                           (shape){.rows = awkward_rows[r],
                                   .cols = awkward_cols[c],
                                   .inner = vocabs[v],
                                   .variant = (int)v},
                           1e-5);
}

/* A table whose rows hold their own numbers. */
static strait_tensor row_numbers(struct rig *rig, int64_t rows) {
    float *values = rig_floats(rows);
    for (int64_t i = 0; i < rows; i++)
        values[i] = (float)i;
    const strait_tensor t = rig_values(rig, rows, 1, values);
    free(values);
    return t;
}

/* Which rows token ids have in a table with fewer rows is part of the model: the numbers are those
 * of docs/codecs.md. */
static void finds_rows_of_short_tables(void **state) {
    (void)state;
    static const struct {
        int64_t n_rows;
        int32_t token;
        float row;
    } cases[] = {{6144, 0, 0},       {6144, 6143, 6143},  {6144, 6144, 4799},
                 {6144, 6145, 4658}, {6144, 65535, 5223}, {6144, 128255, 4794},
                 {1, 5, 0},          {23, 36, 18},        {128256, 128255, 128255}};
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        for (size_t c = 0; c < COUNT(cases); c++) {
            const strait_tensor ids = rig_ints(&rig, 1, &cases[c].token);
            const strait_tensor y = rig_output(&rig, 1, 1);
            const strait_tensor table = row_numbers(&rig, cases[c].n_rows);
            CHECK_OK(rig.k->table_ids(&rig.stream, ids, ids, cases[c].n_rows));
            CHECK_OK(rig.k->embed(&rig.stream, y, table, ids));
            rig_keep(&rig, y);
            CHECK_NEAR(rig.kept[rig.n_kept - 1], cases[c].row, 0.0);
        }
        rig_close(&rig);
    }
}

/* More tokens than one pass of a device's threads. */
static void run_table_ids(struct rig *rig, shape s) {
    const strait_tensor tokens = rig_tokens(rig, s.rows, 4 * s.inner, 6);
    const strait_tensor ids = rig_tokens(rig, s.rows, 1, 1);
    const strait_tensor y = rig_output(rig, s.rows, 1);
    CHECK_OK(rig->k->table_ids(&rig->stream, ids, tokens, s.inner));
    CHECK_OK(rig->k->embed(&rig->stream, y, row_numbers(rig, s.inner), ids));
    rig_keep(rig, y);
}

static void matches_reference_table_ids(void **state) {
    (void)state;
    for (size_t r = 0; r < COUNT(awkward_rows); r++)
        check_case(run_table_ids, (shape){.rows = awkward_rows[r], .inner = 100}, 0.0);
    check_case(run_table_ids, (shape){.rows = 70001, .inner = 6144}, 0.0);
}

/* Integers whose sums are exact in f32, so that the order of sums does not matter. */
static strait_tensor whole_numbers(struct rig *rig, int64_t rows, int64_t cols, int among) {
    float *values = malloc((size_t)(rows * cols) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = (float)(i * 7 % among - among / 2);
    const strait_tensor t = rig_values(rig, rows, cols, values);
    free(values);
    return t;
}

/* Tokens that occur more often than one block sums; twice, with the same bits. Variant 1 has
 * integers, so that there may be many. */
static void run_common_token(struct rig *rig, shape s) {
    int32_t *values = malloc((size_t)s.rows * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < s.rows; i++)
        values[i] = i % 17 == 3 ? (int32_t)(i % s.inner) : 2;
    const strait_tensor tokens = rig_ints(rig, s.rows, values);
    free(values);
    const strait_tensor d_y = s.variant == 1 ? whole_numbers(rig, s.rows, s.cols, 9)
                                             : rig_act(rig, s.rows, s.cols, 8);
    for (int again = 0; again < 2; again++) {
        const strait_tensor d_table = s.variant == 1 ? whole_numbers(rig, s.inner, s.cols, 5)
                                                     : rig_input(rig, s.inner, s.cols, 7);
        CHECK_OK(rig->k->embed_back(&rig->stream, d_table, d_y, tokens));
        rig_keep(rig, d_table);
    }
    assert_memory_equal(rig->kept, rig->kept + rig->ends[0], rig->ends[0] * sizeof *rig->kept);
}

static void embedding_gradient_sums_frequent_tokens(void **state) {
    (void)state;
    check_case(run_common_token, (shape){.rows = 2500, .cols = 24, .inner = 40}, 1e-5);
    check_case(run_common_token, (shape){.rows = 4097, .cols = 5, .inner = 3}, 1e-5);
    check_case(run_common_token, (shape){.rows = 30000, .cols = 64, .inner = 300, .variant = 1}, 0);
}

/* A row of a product has the same bits whatever the number of rows; a device promises it only for
 * equal numbers. cols: of both sides; inner: depth; variant: transpose_b. */
static void run_rowwise(struct rig *rig, shape s) {
    const strait_tensor a = rig_act(rig, 40, s.inner, 1);
    const strait_tensor b = s.variant ? rig_act(rig, s.cols, s.inner, 2)
                                      : rig_act(rig, s.inner, s.cols, 2);
    const strait_tensor whole = rig_act_output(rig, 40, s.cols);
    const strait_matmul_params params = {.transpose_b = s.variant, .alpha = 1.0f, .is_rowwise = 1};
    CHECK_OK(rig->k->matmul(&rig->stream, whole, a, b, params));
    rig_keep(rig, whole);
    for (int64_t n = 1; rig->be->ops->is_host && n <= 33; n += 8) {
        const strait_tensor y = rig_act_output(rig, n, s.cols);
        float ours[33 * 70];
        CHECK_OK(rig->k->matmul(&rig->stream, y, strait_tensor_rows(a, 7, n), b, params));
        rig_read(rig, y, ours);
        for (int64_t i = 0; i < n * s.cols; i++)
            assert_memory_equal(&rig->kept[7 * s.cols + i], &ours[i], sizeof *ours);
    }
}

static void rows_do_not_depend_on_their_number(void **state) {
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++)
        check_case(run_rowwise, (shape){.cols = 70, .inner = 129, .variant = transposed}, 2e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference_elementwise),
        cmocka_unit_test(bf16_rounds_half_to_even),
        cmocka_unit_test(matches_reference_matmul),
        cmocka_unit_test(matches_reference_matmul_of_many_chunks),
        cmocka_unit_test(matches_reference_norms),
        cmocka_unit_test(sum_of_squares_keeps_small_addends),
        cmocka_unit_test(matches_reference_embedding),
        cmocka_unit_test(finds_rows_of_short_tables),
        cmocka_unit_test(matches_reference_table_ids),
        cmocka_unit_test(embedding_gradient_sums_frequent_tokens),
        cmocka_unit_test(rows_do_not_depend_on_their_number),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
