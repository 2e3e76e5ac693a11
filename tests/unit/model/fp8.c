/* fp8.c - a model whose blocks multiply in 8 bits: gradients near those in f32, the same bits by
 * every way through a step, and products of other sizes left as they are. */
#include "tiny.h"

enum {
    N_SEQUENCES = 2,
    SEQ_LEN = 16
};

static strait_shape round_shape(strait_shape shape) {
    shape.context = SEQ_LEN;
    shape.layers = 1; // rounding errors of random weights grow from layer to layer
    shape.width = 48;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 8;
    shape.ffn = 64;
    return shape;
}

static struct strait_stage *open_stage(const strait_stage_spec *spec,
                                       struct strait_backend *backend) {
    struct strait_stage *stage = NULL;
    CHECK_OK(strait_stage_open(spec, backend, &stage));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_refresh(stage));
    CHECK_OK(strait_stage_zero_gradients(stage));
    return stage;
}

static double norm_of(const float *x, const float *less, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (less != NULL ? (double)less[i] : 0.0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* Gradients of every parameter in 8 bits, against those in f32: near, but not equal. */
static void check_model(strait_shape shape) {
    struct strait_backend *backend = tiny_backend(0);
    strait_stage_spec spec = tiny_spec(shape, N_SEQUENCES, SEQ_LEN);
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_stage *exact = open_stage(&spec, backend);
    spec.shape.has_fp8 = 1;
    struct strait_stage *rounded = open_stage(&spec, backend);
    const double loss = tiny_loss(exact, &batch, 1), near = tiny_loss(rounded, &batch, 1);
    CHECK(near != loss && fabs(near - loss) < 0.05 * loss); // NOLINT: rounding must show
    int n = 0;
    const strait_param *a = strait_stage_params(exact, &n), *b = strait_stage_params(rounded, &n);
    for (int i = 0; i < n; i++) {
        const int64_t count = a[i].grad.rows * a[i].grad.cols;
        const double size = norm_of(a[i].grad.data, NULL, count);
        const double apart = norm_of(a[i].grad.data, b[i].grad.data, count);
        if (!(apart < 0.4 * size) || !(apart > 1e-5 * size))
            fail_msg("%s: the gradient has norm %g, and is %g apart", a[i].name, size, apart);
    }
    strait_stage_close(&exact);
    strait_stage_close(&rounded);
    strait_backend_close(&backend);
}

static void gradients_are_near_those_in_f32(void **state) {
    (void)state;
    check_model(round_shape(tiny_llama()));
    check_model(round_shape(tiny_yardstick()));
    check_model(tiny_local(round_shape(tiny_llama()), 2));
}

/* Sizes that no product in 8 bits can have: nothing changes. */
static void other_sizes_keep_their_bits(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_shape shape = tiny_llama(); // odd widths
    strait_stage_spec spec = tiny_spec(shape, 2, 7);
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_stage *exact = open_stage(&spec, backend);
    spec.shape.has_fp8 = 1;
    struct strait_stage *rounded = open_stage(&spec, backend);
    CHECK_NEAR(tiny_loss(exact, &batch, 1), tiny_loss(rounded, &batch, 1), 0);
    strait_stage_close(&exact);
    strait_stage_close(&rounded);
    strait_backend_close(&backend);
}

/* Recomputed activations, and weight gradients that are computed later. */
static void every_way_has_the_same_bits(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    strait_shape shape = round_shape(tiny_yardstick());
    shape.has_fp8 = 1;
    strait_stage_spec spec = tiny_spec(shape, N_SEQUENCES, SEQ_LEN), other = spec;
    other.recomputes = 1;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_stage *one = open_stage(&spec, backend), *two = open_stage(&other, backend);
    CHECK_NEAR(tiny_loss(one, &batch, 1), tiny_loss(two, &batch, 1), 0);
    int n = 0;
    const strait_param *a = strait_stage_params(one, &n), *b = strait_stage_params(two, &n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(a[i].grad.data, b[i].grad.data, strait_tensor_bytes(a[i].grad));
    strait_stage_close(&one);
    strait_stage_close(&two);
    strait_backend_close(&backend);
}

/* The scratch is in the plan: 32 tokens, and the mlp's 48 x 128 as the largest matrix. */
static void plan_has_the_scratch(void **state) {
    (void)state;
    strait_stage_spec spec = tiny_spec(round_shape(tiny_llama()), N_SEQUENCES, SEQ_LEN);
    strait_stage_memory without, with;
    CHECK_OK(strait_stage_plan(&spec, &without));
    spec.shape.has_fp8 = 1;
    CHECK_OK(strait_stage_plan(&spec, &with));
    const size_t n = (size_t)N_SEQUENCES * SEQ_LEN, least = STRAIT_FP8_HEAD + (n + 48) * 128;
    CHECK(with.activations >= without.activations + least);
    CHECK(with.activations < without.activations + least + 512); // alignment
    assert_int_equal(with.weights, without.weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_near_those_in_f32),
        cmocka_unit_test(other_sizes_keep_their_bits),
        cmocka_unit_test(every_way_has_the_same_bits),
        cmocka_unit_test(plan_has_the_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
