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

/* More heads of sequences than a GPU works on at a time. The tolerance leaves room for a few of
 * millions of rounded values, not for a head in the wrong place. */
static void matches_reference_over_many_heads(void **state) {
    (void)state;
    check_case(run_attention, attention_shape(groups[0], 64, 64, rig_is_quick() ? 2 : 800), 5e-2);
}

/* The rotation within the backward pass has the bits of the two kernels one after the other. */
static void run_rotated(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t n_rows = s.rows * h.seq_len, y_cols = (int64_t)h.n_query * h.head_dim;
    const int64_t cols = y_cols + 2 * (int64_t)h.n_key * h.head_dim, n = n_rows * cols;
    const strait_tensor qkv = rig_act(rig, n_rows, cols, 1), d_y = rig_act(rig, n_rows, y_cols, 2);
    const strait_tensor y = rig_act_output(rig, n_rows, y_cols), absent = {0};
    const strait_tensor lse = rig_output(rig, n_rows, h.n_query);
    const strait_tensor apart = rig_act_output(rig, n_rows, cols);
    const strait_tensor d_qkv = rig_act_output(rig, n_rows, cols);
    const strait_rotate_params rotation = {.heads = h,
                                           .cos = rig_input(rig, h.seq_len, h.head_dim / 2, 3),
                                           .sin = rig_input(rig, h.seq_len, h.head_dim / 2, 4)};
    CHECK_OK(rig->k->attention(&rig->stream, y, lse, qkv, h));
    CHECK_OK(rig->k->attention_back(&rig->stream, apart, d_y, y, qkv, lse, h));
    CHECK_OK(rig->k->rotate_back(&rig->stream, apart, absent, apart, absent, absent, rotation));
    CHECK_OK(rig->k->attention_rotate_back(&rig->stream, d_qkv, d_y, y, qkv, lse, rotation));
    rig_keep(rig, apart);
    rig_keep(rig, d_qkv);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&rig->kept[i], &rig->kept[n + i], sizeof *rig->kept) != 0)
            fail_msg("value %lld is %.9g, by two kernels %.9g", (long long)i,
                     (double)rig->kept[n + i], (double)rig->kept[i]);
}

static void rotates_back_with_the_same_bits(void **state) {
    (void)state;
    static const int dims[] = {8, 64, 128};
    static const int64_t lengths[] = {1, 100, 200};
    for (size_t d = 0; d < COUNT(dims); d++)
        for (size_t t = 0; t < COUNT(lengths); t++)
            check_one_of_many(run_rotated, attention_shape(groups[1], dims[d], lengths[t], 2),
                              5e-2);
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

/* variant: number of cached tokens; rows: sequences, which are in the opposite order of the rows.
 * The last row is of no sequence: its y stays as it is. */
static void run_cached(struct rig *rig, shape s) {
    const strait_heads h = s.heads;
    const int64_t y_cols = (int64_t)h.n_query * h.head_dim, width = (int64_t)h.n_key * h.head_dim;
    const strait_tensor keys = rig_act(rig, s.rows * h.seq_len, width, 1);
    const strait_tensor values = rig_act(rig, s.rows * h.seq_len, width, 2);
    const strait_tensor qkv = rig_act(rig, s.rows + 1, y_cols + 2 * width, 3);
    const strait_tensor y = rig_act(rig, s.rows + 1, y_cols, 4);
    int32_t sequences[4] = {0}, positions[4] = {0};
    for (int32_t i = 0; i <= s.rows; i++) {
        sequences[i] = (int32_t)s.rows - 1 - i;
        positions[i] = i < s.rows ? s.variant : 0;
    }
    const strait_cached_rows at = {rig_ints(rig, s.rows + 1, sequences),
                                   rig_ints(rig, s.rows + 1, positions)};
    CHECK_OK(rig->k->attention_cached(&rig->stream, y, keys, values, qkv, at, h));
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

/* Feeding two sequences, `step` tokens of each at a time, gives the rows of the whole ones, and the
 * same bits for any step. */
static void check_steps(struct rig *rig, int64_t step, int is_first, float *first) {
    enum {
        LENGTH = 40,
        DIM = 8,
        WIDTH = 4 * DIM
    };
    const strait_heads h = {
        .n_query = 4, .n_key = 2, .head_dim = DIM, .seq_len = LENGTH, .scale = 0.35f};
    const strait_tensor qkv = rig_input(rig, 2 * LENGTH, 8 * DIM, 1), absent = {0};
    const strait_tensor whole = rig_output(rig, 2 * LENGTH, WIDTH);
    const strait_tensor keys = rig_output(rig, 2 * LENGTH, 2 * DIM);
    const strait_tensor values = rig_output(rig, 2 * LENGTH, 2 * DIM);
    float mixed[LENGTH * 2 * 8 * DIM], from[LENGTH * 2 * 8 * DIM];
    CHECK_OK(rig->k->attention(&rig->stream, whole, absent, qkv, h));
    rig_keep(rig, whole);
    rig_read(rig, qkv, from);
    for (int64_t t = 0; t < LENGTH; t += step) {
        int32_t sequences[2 * LENGTH], positions[2 * LENGTH];
        for (int64_t i = 0; i < 2 * step; i++) {
            sequences[i] = (int32_t)(i % 2);
            positions[i] = (int32_t)(t + i / 2);
            memcpy(mixed + i * 8 * DIM, from + (i % 2 * LENGTH + t + i / 2) * 8 * DIM,
                   8 * DIM * sizeof *mixed);
        }
        const strait_tensor y = rig_output(rig, 2 * step, WIDTH);
        const strait_cached_rows at = {rig_ints(rig, 2 * step, sequences),
                                       rig_ints(rig, 2 * step, positions)};
        CHECK_OK(rig->k->attention_cached(&rig->stream, y, keys, values,
                                          rig_values(rig, 2 * step, 8 * DIM, mixed), at, h));
        float ours[2 * LENGTH * WIDTH];
        rig_read(rig, y, ours);
        for (int64_t i = 0; i < 2 * step; i++)
            for (int64_t c = 0; c < WIDTH; c++) {
                const int64_t row = i % 2 * LENGTH + t + i / 2;
                CHECK_NEAR(rig->kept[row * WIDTH + c], ours[i * WIDTH + c], 1e-5);
                if (is_first) first[row * WIDTH + c] = ours[i * WIDTH + c];
                assert_memory_equal(&first[row * WIDTH + c], &ours[i * WIDTH + c], sizeof *ours);
            }
    }
}

static void cached_tokens_equal_whole_sequences(void **state) {
    (void)state;
    static float first[2 * 40 * 32];
    static const int64_t steps[] = {4, 20, 40};
    for (int i = 0; strait_backends[i] != NULL; i++)
        for (size_t j = 0; j < COUNT(steps); j++) {
            if (!rig_is_available(i)) continue;
            struct rig rig;
            rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
            check_steps(&rig, steps[j], j == 0, first);
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
        cmocka_unit_test(matches_reference_over_many_heads),
        cmocka_unit_test(rotates_back_with_the_same_bits),
        cmocka_unit_test(survives_large_scores),
        cmocka_unit_test(computes_y_without_lse),
        cmocka_unit_test(repeats_its_bits),
        cmocka_unit_test(matches_reference_with_cache),
        cmocka_unit_test(cached_tokens_equal_whole_sequences),
        cmocka_unit_test(rejects_wide_heads),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
