/* Tokens drawn from logits: compared with the reference loops, and with results computed by hand.
 */
#include "rig.h"

enum {
    VOCAB = 5
};

/* Probabilities at temperature 1: 0.1, 0.4, 0.1, 0.3, 0.1. */
static const float by_hand[VOCAB] = {-2.30258509f, -0.91629073f, -2.30258509f, -1.20397280f,
                                     -2.30258509f};

static const strait_sample_row plain = {.temperature = 1, .top_p = 1, .penalty = 1};

static strait_tensor rows_of(struct rig *rig, const strait_sample_row *rows, int64_t n) {
    strait_tensor t = rig_bytes(rig, n * (int64_t)sizeof *rows);
    CHECK_OK(rig->be->ops->upload(&rig->stream, t.data, rows, (size_t)n * sizeof *rows));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    t.rows = n;
    t.cols = (int64_t)sizeof *rows;
    return t;
}

static strait_tensor seen_of(struct rig *rig, const unsigned char *seen, int64_t n, int64_t cols) {
    strait_tensor t = rig_bytes(rig, n * cols);
    CHECK_OK(rig->be->ops->upload(&rig->stream, t.data, seen, (size_t)(n * cols)));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    t.rows = n;
    t.cols = cols;
    return t;
}

static int32_t read_token(struct rig *rig, strait_tensor tokens, int64_t i) {
    int32_t token = -1;
    CHECK_OK(
        rig->be->ops->download(&rig->stream, &token, (int32_t *)tokens.data + i, sizeof token));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    return token;
}

static int32_t pick(const float *logits, int64_t n, strait_sample_row row, unsigned char *seen) {
    struct rig *rig = rig_under_test();
    int32_t none = -1;
    const strait_tensor tokens = rig_ints(rig, 1, &none), absent = {0};
    const strait_tensor marks = seen != NULL ? seen_of(rig, seen, 1, n) : absent;
    CHECK_OK(rig->k->sample(&rig->stream, tokens, marks, rig_values(rig, 1, n, logits),
                            rows_of(rig, &row, 1)));
    const int32_t token = read_token(rig, tokens, 0);
    if (seen != NULL) {
        CHECK_OK(rig->be->ops->download(&rig->stream, seen, marks.data, (size_t)n));
        CHECK_OK(rig->be->ops->wait(&rig->stream));
    }
    rig_clear(rig);
    return token;
}

static int32_t pick_with(float temperature, int32_t top_k, float top_p, float random) {
    strait_sample_row row = plain;
    row.temperature = temperature, row.top_k = top_k, row.top_p = top_p, row.random = random;
    return pick(by_hand, VOCAB, row, NULL);
}

static void check_order(void) {
    static const struct {
        float random;
        int32_t token;
    } cases[] = {{0.0f, 1},  {0.39f, 1}, {0.41f, 3}, {0.69f, 3},      {0.71f, 0},
                 {0.79f, 0}, {0.81f, 2}, {0.91f, 4}, {0.99999994f, 4}};
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(pick_with(1, 0, 1, cases[i].random), cases[i].token);
}

static void check_temperature(void) {
    assert_int_equal(pick_with(0, 0, 1, 0.99f), 1);
    /* Temperature 0.5 squares the probabilities: weights 16, 9, 1, 1, 1 of 28. */
    assert_int_equal(pick_with(0.5f, 0, 1, 0.56f), 1);
    assert_int_equal(pick_with(0.5f, 0, 1, 0.58f), 3);
    /* Almost uniform. */
    assert_int_equal(pick_with(100, 0, 1, 0.22f), 3);
}

static void check_limits(void) {
    strait_sample_row row = plain;
    assert_int_equal(pick_with(1, 1, 1, 0.99f), 1);
    assert_int_equal(pick_with(1, 2, 1, 0.56f), 1); // 4 of 7
    assert_int_equal(pick_with(1, 2, 1, 0.58f), 3);
    assert_int_equal(pick_with(1, 99, 1, 0.99f), 4);
    assert_int_equal(pick_with(1, 3, 1, 0.99f), 0);
    assert_int_equal(pick_with(1, 0, 0.6f, 0.99f), 3);
    assert_int_equal(pick_with(1, 0, 0.3f, 0.99f), 1);
    assert_int_equal(pick_with(1, 3, 0.8f, 0.99f), 3); // 7 of 8
    row.random = 0.99f;
    row.min_p = 0.7f; // 0.3 is 0.75 of 0.4
    assert_int_equal(pick(by_hand, VOCAB, row, NULL), 3);
    row.min_p = 0.8f;
    assert_int_equal(pick(by_hand, VOCAB, row, NULL), 1);
}

static void check_penalty(void) {
    static const float logits[VOCAB] = {3, 4, -1, 3.5f, -8};
    unsigned char seen[VOCAB] = {0, 1, 0, 0, 0};
    strait_sample_row row = plain;
    row.temperature = 0, row.penalty = 1.25f; // 4 becomes 3.2
    assert_int_equal(pick(logits, VOCAB, row, seen), 3);
    assert_memory_equal(seen, ((unsigned char[]){0, 1, 0, 1, 0}), VOCAB);
    assert_int_equal(pick(logits, VOCAB, row, seen), 1); // 3.5 becomes 2.8
    static const float below[3] = {-1, -1.5f, -3};
    unsigned char first[3] = {1, 0, 0};
    row.penalty = 2; // -1 becomes -2
    assert_int_equal(pick(below, 3, row, first), 1);
}

static void check_odd_values(void) {
    static const float odd[VOCAB] = {NAN, -INFINITY, 1, INFINITY, INFINITY};
    static const float none[3] = {NAN, NAN, NAN};
    static const float least[3] = {-INFINITY, -INFINITY, NAN};
    strait_sample_row row = plain;
    row.random = 0.49f;
    assert_int_equal(pick(odd, VOCAB, row, NULL), 3);
    row.random = 0.51f;
    assert_int_equal(pick(odd, VOCAB, row, NULL), 4);
    assert_int_equal(pick(none, 3, row, NULL), 0);
    assert_int_equal(pick(least, 3, row, NULL), 1);
    row.temperature = 1e-30f;
    assert_int_equal(pick(by_hand, VOCAB, row, NULL), 1);
    row.temperature = 0;
    assert_int_equal(pick(none, 3, row, NULL), 0);
    row.temperature = 1, row.softcap = 1;
    assert_int_equal(pick((float[]){5, 5, 5}, 3, row, NULL), 1);
}

static void draws_by_probability_most_likely_first(void **state) {
    (void)state;
    on_every_device(check_order);
    on_every_device(check_temperature);
}

static void limits_renormalise(void **state) {
    (void)state;
    on_every_device(check_limits);
}

static void penalty_lowers_tokens_seen(void **state) {
    (void)state;
    on_every_device(check_penalty);
}

static void odd_values_give_a_token(void **state) {
    (void)state;
    on_every_device(check_odd_values);
}

/* rows: of logits, some not sampled; cols: vocabulary; variant: which limits, 16 combinations */
static void run_sample(struct rig *rig, shape s) {
    const strait_tensor logits = rig_input(rig, s.rows, s.cols, 1), absent = {0};
    int32_t drawn[16] = {0};
    strait_sample_row rows[16];
    unsigned char *seen = calloc((size_t)s.rows, (size_t)s.cols);
    assert_non_null(seen);
    for (int64_t i = 0; i < s.rows * s.cols; i += 3)
        seen[i] = 1;
    for (int32_t i = 0; i < s.rows; i++)
        rows[i] = (strait_sample_row){.temperature = 0.1f + 0.4f * (float)i,
                                      .top_p = (s.variant & 1) != 0 ? 0.8f : 1.0f,
                                      .min_p = (s.variant & 2) != 0 ? 0.05f : 0.0f,
                                      .top_k = (s.variant & 4) != 0 ? 7 + 100 * i : 0,
                                      .penalty = (s.variant & 8) != 0 ? 1.2f : 1.0f,
                                      .random = 0.11f * (float)i,
                                      .sequence = i % 5 == 4 ? -1 : i};
    const strait_tensor tokens = rig_ints(rig, s.rows, drawn);
    const strait_tensor marks = (s.variant & 8) != 0 ? seen_of(rig, seen, s.rows, s.cols) : absent;
    CHECK_OK(rig->k->sample(&rig->stream, tokens, marks, logits, rows_of(rig, rows, s.rows)));
    float each[16];
    for (int64_t i = 0; i < s.rows; i++)
        each[i] = (float)read_token(rig, tokens, i);
    rig_keep(rig, rig_values(rig, s.rows, 1, each));
    if (marks.data != NULL)
        rig_keep_bytes(rig, (strait_tensor){marks.data, STRAIT_I8, 1, s.rows * s.cols});
    free(seen);
}

static void matches_reference(void **state) {
    (void)state;
    static const int64_t vocabs[] = {1, 2, 37, 1024, 5001};
    for (size_t v = 0; v < COUNT(vocabs); v++)
        for (int variant = 0; variant < 16; variant++)
            check_one_of_many(
                run_sample,
                (shape){.rows = 9, .cols = vocabs[v], .variant = variant, .is_f32_only = 1}, 1e-6);
}

/* All logits equal: one bin has everything, and the number decides. */
static void run_equal(struct rig *rig, shape s) {
    float *logits = rig_floats(s.cols);
    strait_sample_row row = plain;
    int32_t drawn = -1;
    for (int64_t i = 0; i < s.cols; i++)
        logits[i] = 2.5f;
    row.random = 0.7f;
    const strait_tensor tokens = rig_ints(rig, 1, &drawn), absent = {0};
    CHECK_OK(rig->k->sample(&rig->stream, tokens, absent, rig_values(rig, 1, s.cols, logits),
                            rows_of(rig, &row, 1)));
    const float token = (float)read_token(rig, tokens, 0);
    CHECK_NEAR(token, (float)(0.7 * (double)s.cols), 1);
    rig_keep(rig, rig_values(rig, 1, 1, &token));
    free(logits);
}

static void equal_logits_are_drawn_by_number(void **state) {
    (void)state;
    check_case(run_equal, (shape){.cols = 3001, .is_f32_only = 1}, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_by_probability_most_likely_first),
        cmocka_unit_test(limits_renormalise),
        cmocka_unit_test(penalty_lowers_tokens_seen),
        cmocka_unit_test(odd_values_give_a_token),
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(equal_logits_are_drawn_by_number),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
