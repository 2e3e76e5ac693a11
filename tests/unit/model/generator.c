/* generator.c - token by token with a cache says what the whole sequence at once says. */
#include "model/generator.h"

#include "tiny.h"

/* -log softmax(logits)[target], in double. */
static double surprise(const float *logits, int64_t n, int32_t target) {
    double top = (double)logits[0];
    double sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        if ((double)logits[i] > top) top = (double)logits[i];
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[target];
}

static void check_generating(strait_shape shape) {
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(shape, 1, shape.context);
    struct strait_stage *stage = NULL;
    struct strait_generator *generator = NULL;
    tiny_batch batch;
    const float *logits = NULL;
    tiny_fill(&batch, &shape, 5);
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 4);
    (void)tiny_loss(stage, &batch, 0);
    strait_tensor losses;
    CHECK_OK(strait_stage_loss(stage, tiny_ids(batch.targets, shape.context), 0.0f, &losses));
    CHECK_OK(strait_generator_open(stage, &generator));
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < shape.context; i++) {
            CHECK_OK(strait_generator_feed(generator, batch.tokens[i], &logits));
            CHECK_NEAR(surprise(logits, shape.vocab, batch.targets[i]),
                       (double)((const float *)losses.data)[i], 2e-5);
        }
        assert_int_equal(strait_generator_position(generator), shape.context);
        CHECK_FAILS(strait_generator_feed(generator, 1, &logits), STRAIT_EINVAL, "full");
        strait_generator_reset(generator);
    }
    CHECK_FAILS(strait_generator_feed(generator, 99, &logits), STRAIT_EDATA, "vocabulary of 37");
    strait_generator_close(&generator);
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void test_llama(void **state) {
    (void)state;
    check_generating(tiny_llama());
}

static void test_yardstick(void **state) {
    (void)state;
    check_generating(tiny_yardstick());
}

static void test_part_of_a_model_is_refused(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    strait_stage_spec spec = tiny_spec(tiny_llama(), 1, 2);
    struct strait_stage *stage = NULL;
    struct strait_generator *generator = NULL;
    spec.part.last = 1;
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    CHECK_FAILS(strait_generator_open(stage, &generator), STRAIT_EINVAL, "whole model");
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_yardstick),
        cmocka_unit_test(test_part_of_a_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
