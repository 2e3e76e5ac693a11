/* generator.c - one token at a time with a cache gives the logits of the whole sequence. */
#include "model/generator.h"

#include "tiny.h"

/* -log softmax(logits)[target], in double. */
static double cross_entropy(const float *logits, int64_t n, int32_t target) {
    double top = (double)logits[0];
    double sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        if ((double)logits[i] > top) top = (double)logits[i];
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[target];
}

static void check_shape(strait_shape shape) {
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
    for (int sequence = 0; sequence < 2; sequence++) {
        for (int64_t i = 0; i < shape.context; i++) {
            CHECK_OK(strait_generator_feed(generator, batch.tokens[i], &logits));
            CHECK_NEAR(cross_entropy(logits, shape.vocab, batch.targets[i]),
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

static void llama_matches_the_whole_sequence(void **state) {
    (void)state;
    check_shape(tiny_llama());
}

static void yardstick_matches_the_whole_sequence(void **state) {
    (void)state;
    check_shape(tiny_yardstick());
}

static void local_parts_match_the_whole_sequence(void **state) {
    (void)state;
    check_shape(tiny_local(tiny_llama(), 2));
    check_shape(tiny_local(tiny_yardstick(), 1));
    check_shape(tiny_local(tiny_yardstick(), 2));
    strait_shape shape = tiny_llama();
    shape.has_token_tables = 1;
    check_shape(shape);
}

/* Two stages, the output of one copied into the other, give the logits of one. */
static void split_model_gives_the_same_logits(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_shape shape = tiny_local(tiny_llama(), 2);
    struct strait_stage *stages[3] = {NULL};
    struct strait_generator *generators[3] = {NULL};
    const strait_layer_range ranges[] = {{0, 3}, {0, 1}, {1, 3}};
    const float *whole = NULL;
    const float *joined = NULL;
    for (int i = 0; i < 3; i++) {
        strait_stage_spec spec = tiny_spec(shape, 1, 2);
        spec.layers = ranges[i];
        CHECK_OK(strait_stage_open(&spec, backend, &stages[i]));
        tiny_randomise(stages[i], 4);
        CHECK_OK(strait_generator_open(stages[i], &generators[i]));
    }
    for (int32_t token = 0; token < 5; token++) {
        strait_tensor output;
        CHECK_OK(strait_generator_feed(generators[0], token, &whole));
        CHECK_OK(strait_generator_embed(generators[1], token));
        CHECK_OK(strait_generator_run(generators[1]));
        CHECK_OK(strait_generator_output(generators[1], &output));
        CHECK_OK(strait_generator_embed(generators[2], token));
        memcpy(strait_generator_input(generators[2]).data, output.data,
               strait_tensor_bytes(output));
        CHECK_OK(strait_generator_run(generators[2]));
        CHECK_OK(strait_generator_logits(generators[2], &joined));
        assert_memory_equal(whole, joined, (size_t)shape.vocab * sizeof(float));
    }
    CHECK_FAILS(strait_generator_logits(generators[1], &joined), STRAIT_EINVAL, "head");
    for (int i = 0; i < 3; i++) {
        strait_generator_close(&generators[i]);
        strait_stage_close(&stages[i]);
    }
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_the_whole_sequence),
        cmocka_unit_test(yardstick_matches_the_whole_sequence),
        cmocka_unit_test(local_parts_match_the_whole_sequence),
        cmocka_unit_test(split_model_gives_the_same_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
