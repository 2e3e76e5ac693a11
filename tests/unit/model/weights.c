/* weights.c - names, counts and initial values of parameters. */
#include "tiny.h"

static const strait_param *find(struct strait_stage *stage, const char *name) {
    int n = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    for (int i = 0; i < n; i++)
        if (strcmp(params[i].name, name) == 0) return &params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static struct strait_stage *open_init(struct strait_backend *backend, strait_shape shape, int first,
                                      int last, uint64_t seed) {
    strait_stage_spec spec = tiny_spec(shape, 1, 2);
    struct strait_stage *stage = NULL;
    spec.layers = (strait_layer_range){first, last};
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    CHECK_OK(strait_stage_init(stage, seed));
    return stage;
}

static double deviation(const strait_param *param) {
    const int64_t n = param->value.rows * param->value.cols;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)((const float *)param->value.data)[i];
        sum += x * x;
    }
    return sqrt(sum / (double)n);
}

static void initial_values_do_not_depend_on_the_split(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    struct strait_stage *whole = open_init(backend, tiny_llama(), 0, 3, 7);
    struct strait_stage *part = open_init(backend, tiny_llama(), 1, 2, 7);
    struct strait_stage *other = open_init(backend, tiny_llama(), 1, 2, 8);
    const strait_param *a = find(whole, "blocks.1.mlp.down");
    const strait_param *b = find(part, "blocks.1.mlp.down");
    const strait_param *c = find(other, "blocks.1.mlp.down");
    assert_memory_equal(a->value.data, b->value.data, strait_tensor_bytes(a->value));
    assert_memory_not_equal(a->value.data, c->value.data, strait_tensor_bytes(a->value));
    strait_stage_close(&whole);
    strait_stage_close(&part);
    strait_stage_close(&other);
    strait_backend_close(&backend);
}

/* Before training, convolutions and value tables change nothing; token tables repeat the embedding.
 */
static void local_parts_start_at_zero(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    struct strait_stage *stage = open_init(backend, tiny_local(tiny_llama(), 2), 0, 3, 7);
    const strait_param *table = find(stage, "embed.table"),
                       *anchor = find(stage, "blocks.2.anchor");
    assert_memory_equal(table->value.data, anchor->value.data, strait_tensor_bytes(anchor->value));
    assert_int_equal(anchor->role, STRAIT_ROLE_TOKEN_TABLE);
    CHECK_NEAR(deviation(find(stage, "blocks.0.conv")), 0.0, 0.0);
    CHECK_NEAR(deviation(find(stage, "blocks.1.attention.conv")), 0.0, 0.0);
    CHECK_NEAR(deviation(find(stage, "blocks.1.mlp.conv")), 0.0, 0.0);
    CHECK_NEAR(deviation(find(stage, "blocks.1.attention.qkv_conv")), 0.0, 0.0);
    CHECK_NEAR(deviation(find(stage, "blocks.2.attention.values")), 0.0, 0.0);
    int n = 0, has_more = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += params[i].value.rows * params[i].value.cols;
        has_more |= strcmp(params[i].name, "blocks.0.anchor") == 0 ||
                    strcmp(params[i].name, "blocks.1.attention.values") == 0;
    }
    assert_false(has_more);
    assert_int_equal(sum, strait_shape_params(&strait_stage_get_spec(stage)->shape));
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void deviations_follow_the_family(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    struct strait_stage *llama = open_init(backend, tiny_llama(), 0, 3, 7);
    CHECK_NEAR(deviation(find(llama, "blocks.0.mlp.up")), 0.02, 0.003);
    CHECK_NEAR(deviation(find(llama, "blocks.0.mlp.down")), 0.02 / sqrt(6.0), 0.001);
    CHECK_NEAR(deviation(find(llama, "head.norm")), 1.0, 1e-6);
    struct strait_stage *yardstick = open_init(backend, tiny_yardstick(), 0, 3, 7);
    CHECK_NEAR(deviation(find(yardstick, "embed.table")), 1.0, 0.1);
    CHECK_NEAR(deviation(find(yardstick, "blocks.2.attention.q")), sqrt(0.33 / 15.0), 0.02);
    CHECK_NEAR(deviation(find(yardstick, "blocks.2.attention.out")), 0.0, 0.0);
    CHECK_NEAR(deviation(find(yardstick, "head.out")), 0.0, 0.0);
    strait_stage_close(&llama);
    strait_stage_close(&yardstick);
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_do_not_depend_on_the_split),
        cmocka_unit_test(local_parts_start_at_zero),
        cmocka_unit_test(deviations_follow_the_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
