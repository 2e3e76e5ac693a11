/* shape.c - parameter counts and checks of model sizes. */
#include "tiny.h"

static void parameter_count_matches_hand_count(void **state) {
    (void)state;
    const strait_shape s = tiny_llama();
    /* q 24x15, k 12x15, v 12x15, out 15x24, gate and up 21x15, down 15x21, two gains of 15 */
    const int64_t block = 24 * 15 + 2 * 12 * 15 + 15 * 24 + 3 * 21 * 15 + 30;
    assert_int_equal(strait_shape_block_params(&s), block);
    assert_int_equal(strait_shape_params(&s), 3 * block + 2 * 37 * 15 + 15);
    assert_int_equal(strait_shape_qkv_cols(&s), 48);
    assert_int_equal(strait_shape_attention_cols(&s), 24);
}

static void yardstick_has_its_published_size(void **state) {
    (void)state;
    const strait_shape s = {.vocab = 50304,
                            .context = 1024,
                            .layers = 8,
                            .width = 1024,
                            .heads = 8,
                            .kv_heads = 8,
                            .head_dim = 128,
                            .ffn = 4096,
                            .activation = STRAIT_RELU2};
    CHECK_NEAR((double)strait_shape_params(&s) / 1e6, 203.8, 0.2);
}

static void rejects_inconsistent_sizes(void **state) {
    (void)state;
    strait_shape s = tiny_llama();
    s.kv_heads = 3;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "multiple of model.kv_heads");
    s = tiny_llama();
    s.head_dim = 5;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "must be even");
    s = tiny_llama();
    s.rope = STRAIT_ROPE_HALF;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "multiple of 4");
    s = tiny_llama();
    s.has_qk_gain = 1;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "needs model.qk_norm");
    s = tiny_llama();
    s.vocab = 1;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.vocab");
    s = tiny_llama();
    s.layers = 0;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.layers");
    s = tiny_llama();
    s.context = 0;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.context");
}

/* The 8B shape: a tenth of four layers; gates of a codec share it. */
static void tables_of_large_vocabularies_are_bounded(void **state) {
    (void)state;
    strait_shape s = {.vocab = 128256,
                      .context = 2048,
                      .layers = 32,
                      .width = 4096,
                      .heads = 32,
                      .kv_heads = 8,
                      .head_dim = 128,
                      .ffn = 14336,
                      .local_every = 4};
    assert_int_equal(strait_shape_choose_table_rows(&s, 0), 0); // no tables
    s.has_token_tables = s.has_value_tables = 1;
    const int64_t cols[] = {4096 + 1024, 3 * 4096 + 1024};
    for (int i = 0; i < 2; i++) {
        s.table_rows = strait_shape_choose_table_rows(&s, (int64_t)i * 2 * s.width);
        const int64_t others = 4 * strait_shape_block_params(&s), tables = s.table_rows * cols[i];
        CHECK(9 * tables <= others && 9 * (tables + 64 * cols[i]) > others);
        assert_int_equal(strait_shape_table_rows(&s), s.table_rows);
    }
    s.width = 64;
    assert_int_equal(strait_shape_choose_table_rows(&s, 0), 6144);
    s.vocab = STRAIT_SHAPE_WHOLE_TABLE;
    assert_int_equal(strait_shape_choose_table_rows(&s, 0), 0);
    s.table_rows = s.vocab + 1;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.table_rows (32769)");
}

static void rejects_bottleneck_wider_than_the_model(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    shape.bottleneck = shape.width + 1;
    CHECK_FAILS(strait_shape_check(&shape), STRAIT_ECONFIG, "bottleneck of 16");
    shape.bottleneck = shape.width;
    CHECK_OK(strait_shape_check(&shape));
}

static void rejects_rope_scaling_without_its_numbers(void **state) {
    (void)state;
    strait_shape s = tiny_llama();
    s.rope_scaling = STRAIT_ROPE_LINEAR;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.rope_factor");
    s.rope_factor = 2.0f;
    CHECK_OK(strait_shape_check(&s));
    s.rope_scaling = STRAIT_ROPE_LLAMA3;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.rope_original");
    s = tiny_yardstick();
    s.rope_scaling = STRAIT_ROPE_LINEAR;
    CHECK_FAILS(strait_shape_check(&s), STRAIT_ECONFIG, "model.rope full");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_count_matches_hand_count),
        cmocka_unit_test(yardstick_has_its_published_size),
        cmocka_unit_test(rejects_inconsistent_sizes),
        cmocka_unit_test(tables_of_large_vocabularies_are_bounded),
        cmocka_unit_test(rejects_bottleneck_wider_than_the_model),
        cmocka_unit_test(rejects_rope_scaling_without_its_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
