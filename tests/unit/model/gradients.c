/* gradients.c - the whole model's gradients against central differences, parameter by parameter. */
#include "tiny.h"

static void shift(strait_tensor value, const float *direction, float step) {
    float *values = value.data;
    for (int64_t i = 0; i < value.rows * value.cols; i++)
        values[i] += step * direction[i];
}

static double slope(struct strait_stage *stage, tiny_batch *batch, const strait_param *param,
                    const float *direction, const float *kept, float step) {
    const size_t bytes = strait_tensor_bytes(param->value);
    shift(param->value, direction, step);
    const double above = tiny_loss(stage, batch, 0);
    memcpy(param->value.data, kept, bytes);
    shift(param->value, direction, -step);
    const double below = tiny_loss(stage, batch, 0);
    memcpy(param->value.data, kept, bytes);
    return (above - below) / (2.0 * (double)step);
}

static void check_param(struct strait_stage *stage, tiny_batch *batch, const strait_param *param) {
    enum {
        COUNT_MAX = 4096
    };
    static float direction[COUNT_MAX], kept[COUNT_MAX];
    const int64_t n = param->value.rows * param->value.cols;
    const float *grad = param->grad.data;
    assert_true(n <= COUNT_MAX);
    memcpy(kept, param->value.data, strait_tensor_bytes(param->value));
    /* Along the gradient itself, bent a little at random, so that the slope is large against the
     * rounding of the loss and yet every element takes part. */
    strait_rng_normals((strait_rng){9, strait_rng_stream(param->name)}, 0, direction, (size_t)n);
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++)
        norm += (double)grad[i] * (double)grad[i];
    const double level = sqrt(norm / (double)n);
    assert_true(level > 0.0);
    double expected = 0.0;
    for (int64_t i = 0; i < n; i++) {
        direction[i] = (float)((double)grad[i] / level + 0.5 * (double)direction[i]);
        expected += (double)grad[i] * (double)direction[i];
    }
    /* Richardson: two steps cancel the third-order error. The step makes the loss move by 0.02. */
    const float step = (float)(0.02 / expected) < 0.02f ? (float)(0.02 / expected) : 0.02f;
    const double coarse = slope(stage, batch, param, direction, kept, step);
    const double fine = slope(stage, batch, param, direction, kept, step / 2.0f);
    const double found = (4.0 * fine - coarse) / 3.0;
    if (fabs(found - expected) > 1e-3 * fabs(expected))
        fail_msg("%s: gradient says %.7g, differences say %.7g", param->name, expected, found);
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
    for (int i = 0; i < n; i++) {
        const int is_idle = seq_len == 1 && strstr(params[i].name, "attention.") != NULL &&
                            (strstr(params[i].name, ".q") != NULL ||
                             strstr(params[i].name, ".k") != NULL);
        if (!is_idle) check_param(stage, &batch, &params[i]); // one token: scores do not matter
    }
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void test_llama(void **state) {
    (void)state;
    check_model(tiny_llama(), 2, 7);
}

static void test_llama_tied(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    shape.is_tied = 1;
    check_model(shape, 3, 5);
}

static void test_yardstick(void **state) {
    (void)state;
    check_model(tiny_yardstick(), 2, 9);
}

static void test_qk_gain_and_odd_groups(void **state) {
    (void)state;
    strait_shape shape = tiny_yardstick();
    shape.has_qk_gain = 1;
    shape.heads = 6;
    shape.kv_heads = 3;
    shape.activation = STRAIT_SWIGLU;
    check_model(shape, 1, 12);
}

static void test_one_token(void **state) {
    (void)state;
    check_model(tiny_llama(), 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_llama_tied),
        cmocka_unit_test(test_yardstick), cmocka_unit_test(test_qk_gain_and_odd_groups),
        cmocka_unit_test(test_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
