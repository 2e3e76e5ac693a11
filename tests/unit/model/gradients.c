/* gradients.c - gradients of the whole model against central differences, per parameter. */
#include "differences.h"

struct whole {
    struct strait_stage *stage;
    tiny_batch *batch;
};

static double loss_of(void *user) {
    const struct whole *whole = user;
    return tiny_loss(whole->stage, whole->batch, 0);
}

static void check_model(strait_shape shape, int64_t n_sequences, int64_t seq_len) {
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(shape, n_sequences, seq_len);
    struct strait_stage *stage = NULL;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_zero_gradients(stage));
    (void)tiny_loss(stage, &batch, 1);
    int n = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    struct whole whole = {stage, &batch};
    for (int i = 0; i < n; i++) {
        const int is_idle = seq_len == 1 && strstr(params[i].name, "attention.") != NULL &&
                            (strstr(params[i].name, ".q") != NULL ||
                             strstr(params[i].name, ".k") != NULL);
        /* With one token the attention weight is 1 whatever the scores: no gradient to compare. */
        if (!is_idle) check_differences(loss_of, &whole, &params[i]);
    }
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void llama_matches_differences(void **state) {
    (void)state;
    check_model(tiny_llama(), 2, 7);
}

static void tied_head_matches_differences(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    shape.is_tied = 1;
    check_model(shape, 3, 5);
}

static void yardstick_matches_differences(void **state) {
    (void)state;
    check_model(tiny_yardstick(), 2, 9);
}

static void qk_gain_with_grouped_heads_matches_differences(void **state) {
    (void)state;
    strait_shape shape = tiny_yardstick();
    shape.has_qk_gain = 1;
    shape.heads = 6;
    shape.kv_heads = 3;
    shape.activation = STRAIT_SWIGLU;
    check_model(shape, 1, 12);
}

static void qkv_bias_matches_differences(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    shape.has_qkv_bias = 1;
    shape.rope_scaling = STRAIT_ROPE_LINEAR;
    shape.rope_factor = 3.0f;
    check_model(shape, 2, 7);
    shape.has_qk_norm = shape.has_qk_gain = 1;
    check_model(shape, 2, 7);
}

static void local_parts_match_differences(void **state) {
    (void)state;
    check_model(tiny_local(tiny_llama(), 2), 2, 7);
    check_model(tiny_local(tiny_yardstick(), 1), 3, 5);
    check_model(tiny_local(tiny_yardstick(), 2), 2, 6);
}

static void single_token_matches_differences(void **state) {
    (void)state;
    check_model(tiny_llama(), 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_differences),
        cmocka_unit_test(tied_head_matches_differences),
        cmocka_unit_test(yardstick_matches_differences),
        cmocka_unit_test(qk_gain_with_grouped_heads_matches_differences),
        cmocka_unit_test(qkv_bias_matches_differences),
        cmocka_unit_test(single_token_matches_differences),
        cmocka_unit_test(local_parts_match_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
