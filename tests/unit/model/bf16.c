/* bf16.c - gradients of the whole model in bf16 against central differences of the loss in fp32,
 * and equal bits for any number of threads. */
#include "differences.h"

/* The gradient of a bf16 model has the rounding of about ten tensors in a row, 2^-9 of each. */
#define BF16_SLOPE 3e-2

static struct strait_backend *half_backend(int n_threads) {
    struct strait_backend *backend = NULL;
    CHECK_OK(strait_backend_open(
        (strait_backend_spec){.name = "cpu", .n_threads = n_threads, .precision = STRAIT_BF16},
        &backend));
    return backend;
}

/* A stage with random weights and the gradients of one batch. */
static struct strait_stage *open_with_gradients(const strait_stage_spec *spec,
                                                struct strait_backend *backend, tiny_batch *batch) {
    struct strait_stage *stage = NULL;
    CHECK_OK(strait_stage_open(spec, backend, &stage));
    tiny_randomise(stage, 11);
    CHECK_OK(strait_stage_refresh(stage));
    CHECK_OK(strait_stage_zero_gradients(stage));
    (void)tiny_loss(stage, batch, 1);
    return stage;
}

struct whole {
    struct strait_stage *stage;
    tiny_batch *batch;
};

static double loss_of(void *user) {
    const struct whole *whole = user;
    return tiny_loss(whole->stage, whole->batch, 0);
}

static void check_model(strait_shape shape, int64_t n_sequences, int64_t seq_len) {
    struct strait_backend *f32 = tiny_backend(0), *half = half_backend(2);
    const strait_stage_spec spec = tiny_spec(shape, n_sequences, seq_len);
    strait_stage_spec half_spec = spec;
    half_spec.shape.precision = STRAIT_BF16;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_stage *exact = open_with_gradients(&spec, f32, &batch);
    struct strait_stage *rounded = open_with_gradients(&half_spec, half, &batch);
    int n = 0, n_same = 0;
    const strait_param *params = strait_stage_params(exact, &n);
    const strait_param *other = strait_stage_params(rounded, &n_same);
    assert_int_equal(n, n_same);
    struct whole whole = {exact, &batch};
    for (int i = 0; i < n; i++) {
        strait_param both = params[i]; // the values of one model, the gradient of the other
        both.grad = other[i].grad;
        check_differences_within(loss_of, &whole, &both, BF16_SLOPE);
    }
    strait_stage_close(&exact);
    strait_stage_close(&rounded);
    strait_backend_close(&f32);
    strait_backend_close(&half);
}

static void llama_matches_differences(void **state) {
    (void)state;
    check_model(tiny_llama(), 2, 7);
}

static void yardstick_matches_differences(void **state) {
    (void)state;
    check_model(tiny_yardstick(), 2, 9);
}

static void local_parts_match_differences(void **state) {
    (void)state;
    check_model(tiny_local(tiny_llama(), 2), 2, 7);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    const strait_shape shape = tiny_local(tiny_yardstick(), 1);
    strait_stage_spec spec = tiny_spec(shape, 3, 12);
    spec.shape.precision = STRAIT_BF16;
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_backend *one = half_backend(1), *three = half_backend(3);
    struct strait_stage *a = open_with_gradients(&spec, one, &batch);
    struct strait_stage *b = open_with_gradients(&spec, three, &batch);
    int n = 0;
    const strait_param *with_one = strait_stage_params(a, &n);
    const strait_param *with_three = strait_stage_params(b, &n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(with_one[i].grad.data, with_three[i].grad.data,
                            strait_tensor_bytes(with_one[i].grad));
    strait_stage_close(&a);
    strait_stage_close(&b);
    strait_backend_close(&one);
    strait_backend_close(&three);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_differences),
        cmocka_unit_test(yardstick_matches_differences),
        cmocka_unit_test(local_parts_match_differences),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
