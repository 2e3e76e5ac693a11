/* Attention forward, backward and one token at a time, compared with the reference loops. */
#include "rig.h"

static const int groups[][2] = {{1, 1}, {4, 2}, {6, 2}, {3, 3}};

static void run_attention(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t n_rows = s.rows * h.seq_len, y_cols = (int64_t)h.n_query * h.head_dim;
    const int64_t cols = y_cols + 2 * (int64_t)h.n_key * h.head_dim;
    const strait_tensor qkv = rig_act(rig, n_rows, cols, 1);
    const strait_tensor y = rig_act_output(rig, n_rows, y_cols),
                        lse = rig_output(rig, n_rows, h.n_query);
    CHECK_OK(rig->k->attention(&rig->stream, y, lse, qkv, h));
    rig_keep(rig, y);
    rig_keep(rig, lse);
    const strait_tensor d_y = rig_act(rig, n_rows, y_cols, 2);
    const strait_tensor d_qkv = rig_act_output(rig, n_rows, cols);
    CHECK_OK(rig->k->attention_back(&rig->stream, d_qkv, d_y, y, qkv, lse, h));
    rig_keep(rig, d_qkv);
}

static shape attention_shape(const int group[2], int dim, int64_t length, int64_t n_sequences) {
    return (shape){.rows = n_sequences,
                   .heads = {.n_query = group[0],
                             .n_key = group[1],
                             .head_dim = dim,
                             .seq_len = length,
                             .scale = 1.0f / sqrtf((float)dim)}};
}

static void matches_reference(void **state) {
    (void)state;
    static const int dims[] = {2, 8, 64, 80};
    static const int64_t lengths[] = {1, 5, 64, 100};
    for (size_t g = 0; g < COUNT(groups); g++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (size_t t = 0; t < COUNT(lengths); t++)
                check_one_of_many(run_attention, attention_shape(groups[g], dims[d], lengths[t], 2),
                                  2e-5);
}

static void matches_reference_over_many_tiles(void **state) {
    (void)state;
    const int64_t length = rig_is_quick() ? 70 : 257;
    check_case(run_attention, attention_shape(groups[0], 64, 257, 1), 2e-5);
    check_case(run_attention, attention_shape(groups[1], 80, length, 1), 2e-5);
    check_case(run_attention, attention_shape(groups[3], 5, length, 2), 2e-5);
    check_case(run_attention, attention_shape(groups[0], 128, 130, 1), 2e-5);
    check_case(run_attention, attention_shape(groups[0], 256, 70, 1), 2e-5);
}

/* Scores in the hundreds: the softmax is nearly one-hot and must not overflow. */
static void survives_large_scores(void **state) {
    (void)state;
    shape s = attention_shape(groups[1], 8, 100, 1);
    s.heads.scale = 60;
    s.is_f32_only = 1; // one bit of y times such a scale exceeds any gradient
    check_case(run_attention, s, 2e-3);
}

/* y without lse, as inference computes it. */
static void run_without_lse(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t y_cols = (int64_t)h.n_query * h.head_dim;
    const strait_tensor qkv = rig_act(rig, h.seq_len, y_cols + 2 * (int64_t)h.n_key * h.head_dim,
                                      1);
    const strait_tensor y = rig_act_output(rig, h.seq_len, y_cols), absent = {0};
    CHECK_OK(rig->k->attention(&rig->stream, y, absent, qkv, h));
    rig_keep(rig, y);
}

static void computes_y_without_lse(void **state) {
    (void)state;
    check_case(run_without_lse, attention_shape(groups[2], 8, 33, 1), 2e-5);
    check_case(run_without_lse, attention_shape(groups[2], 64, 33, 1), 2e-5);
}

/* The same inputs give the same bits: blocks that added to one sum would change their order. */
static void run_again(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t n_rows = s.rows * h.seq_len, y_cols = (int64_t)h.n_query * h.head_dim;
    const int64_t cols = y_cols + 2 * (int64_t)h.n_key * h.head_dim;
    const int64_t n = n_rows * (y_cols + h.n_query + cols);
    for (int i = 0; i < 4; i++) {
        run_attention(rig, s);
        for (int64_t v = 0; v < n; v++)
            if (memcmp(&rig->kept[v], &rig->kept[i * n + v], sizeof *rig->kept) != 0)
                fail_msg("run %d differs at value %lld", i, (long long)v);
    }
}

static void repeats_its_bits(void **state) {
    (void)state;
    check_case(run_again, attention_shape(groups[1], 64, rig_is_quick() ? 65 : 300, 2), 2e-5);
    check_case(run_again, attention_shape(groups[1], 128, rig_is_quick() ? 65 : 300, 1), 2e-5);
}

/* variant: number of cached tokens; rows: sequences */
static void run_cached(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t y_cols = (int64_t)h.n_query * h.head_dim, width = (int64_t)h.n_key * h.head_dim;
    const strait_tensor keys = rig_act(rig, s.rows * h.seq_len, width, 1);
    const strait_tensor values = rig_act(rig, s.rows * h.seq_len, width, 2);
    const strait_tensor qkv = rig_act(rig, s.rows, y_cols + 2 * width, 3);
    const strait_tensor y = rig_act_output(rig, s.rows, y_cols);
    CHECK_OK(rig->k->attention_cached(&rig->stream, y, keys, values, qkv, s.variant, h));
    rig_keep(rig, y);
    rig_keep(rig, keys);
    rig_keep(rig, values);
}

static void matches_reference_with_cache(void **state) {
    (void)state;
    static const int dims[] = {2, 8, 64, 80};
    static const int pasts[] = {0, 1, 63, 64, 299};
    for (size_t g = 0; g < COUNT(groups); g++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (size_t p = 0; p < COUNT(pasts); p++) {
                shape s = attention_shape(groups[g], dims[d], 300, 2);
                s.variant = pasts[p];
                check_one_of_many(run_cached, s, 1e-5);
            }
}

/* Feeding a sequence token by token gives the rows of the whole sequence. */
static void cached_tokens_equal_whole_sequence(void **state) {
    (void)state;
    const int64_t length = 40, dim = 8;
    const strait_heads h = {
        .n_query = 4, .n_key = 2, .head_dim = (int)dim, .seq_len = length, .scale = 0.35f};
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        const strait_tensor qkv = rig_input(&rig, length, 8 * dim, 1), absent = {0};
        const strait_tensor whole = rig_output(&rig, length, 4 * dim);
        const strait_tensor steps = rig_output(&rig, length, 4 * dim);
        const strait_tensor keys = rig_output(&rig, length, 2 * dim);
        const strait_tensor values = rig_output(&rig, length, 2 * dim);
        CHECK_OK(rig.k->attention(&rig.stream, whole, absent, qkv, h));
        for (int64_t t = 0; t < length; t++)
            CHECK_OK(rig.k->attention_cached(&rig.stream, strait_tensor_rows(steps, t, 1), keys,
                                             values, strait_tensor_rows(qkv, t, 1), t, h));
        rig_keep(&rig, whole);
        rig_keep(&rig, steps);
        for (int64_t v = 0; v < length * 4 * dim; v++)
            CHECK_NEAR(rig.kept[v], rig.kept[length * 4 * dim + v], 1e-5);
        rig_close(&rig);
    }
}

static void rejects_wide_heads(void **state) {
    (void)state;
    struct rig *rig = reference_rig();
    const strait_heads h = {.n_query = 1, .n_key = 1, .head_dim = 1024, .seq_len = 2, .scale = 1};
    const strait_tensor qkv = rig_input(rig, 2, 3072, 1), y = rig_output(rig, 2, 1024),
                        absent = {0};
    CHECK_FAILS(rig->k->attention(&rig->stream, y, absent, qkv, h), STRAIT_ENOTSUP, "1024");
    rig_check(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(matches_reference_over_many_tiles),
        cmocka_unit_test(survives_large_scores),
        cmocka_unit_test(computes_y_without_lse),
        cmocka_unit_test(repeats_its_bits),
        cmocka_unit_test(matches_reference_with_cache),
        cmocka_unit_test(cached_tokens_equal_whole_sequence),
        cmocka_unit_test(rejects_wide_heads),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
