/* generator.c - one token at a time with a cache gives the logits of the whole sequence. */
#include "model/generator.h"

#include "tiny.h"

static const strait_generator_spec one = {.n_sequences = 1, .n_rows = 1};

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
    CHECK_OK(strait_generator_open(stage, one, &generator));
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
        CHECK_OK(strait_generator_open(stages[i], one, &generators[i]));
    }
    for (int32_t token = 0; token < 5; token++) {
        strait_tensor output;
        CHECK_OK(strait_generator_feed(generators[0], token, &whole));
        const strait_token_row row = {.token = token, .position = token};
        CHECK_OK(strait_generator_begin(generators[1], &row, 1));
        CHECK_OK(strait_generator_run(generators[1]));
        CHECK_OK(strait_generator_output(generators[1], &output));
        CHECK_OK(strait_generator_begin(generators[2], &row, 1));
        memcpy(strait_generator_input(generators[2]).data, output.data,
               strait_tensor_bytes(output));
        CHECK_OK(strait_generator_run(generators[2]));
        CHECK_OK(strait_generator_logits(generators[2], 1, &joined));
        assert_memory_equal(whole, joined, (size_t)shape.vocab * sizeof(float));
    }
    CHECK_FAILS(strait_generator_logits(generators[1], 1, &joined), STRAIT_EINVAL, "head");
    for (int i = 0; i < 3; i++) {
        strait_generator_close(&generators[i]);
        strait_stage_close(&stages[i]);
    }
    strait_backend_close(&backend);
}

enum {
    SEQUENCES = 3,
    ROWS = 7
};

/* Feeds three sequences of different lengths, some tokens of each per step, and keeps the logits of
 * every row. `each` of a sequence at a time. */
static void feed_all(struct strait_stage *stage, const tiny_batch *batch, int each, float *out) {
    const strait_shape *shape = &strait_stage_get_spec(stage)->shape;
    const strait_generator_spec spec = {.n_sequences = SEQUENCES, .n_rows = ROWS};
    struct strait_generator *g = NULL;
    int32_t fed[SEQUENCES] = {0};
    CHECK_OK(strait_generator_open(stage, spec, &g));
    for (int turn = 0; turn < 12; turn++) {
        strait_token_row rows[ROWS];
        int n = 0;
        const float *logits = NULL;
        for (int s = SEQUENCES - 1; s >= 0; s--)
            for (int i = 0; i < each && fed[s] < 8 + s && n < ROWS; i++, fed[s]++)
                rows[n++] = (strait_token_row){batch->tokens[s * 20 + fed[s]], s, fed[s]};
        if (n == 0) break;
        CHECK_OK(strait_generator_begin(g, rows, n));
        CHECK_OK(strait_generator_run(g));
        CHECK_OK(strait_generator_logits(g, n, &logits));
        for (int i = 0; i < n; i++)
            memcpy(out + (rows[i].sequence * 12 + rows[i].position) * shape->vocab,
                   logits + i * shape->vocab, (size_t)shape->vocab * sizeof *out);
    }
    strait_generator_close(&g);
}

/* The bits of a row do not depend on the rows beside it. */
static void sequences_do_not_depend_on_each_other(void **state) {
    (void)state;
    static float alone[SEQUENCES * 12 * 37], together[SEQUENCES * 12 * 37];
    struct strait_backend *backend = tiny_backend(0);
    const strait_shape shapes[] = {tiny_llama(), tiny_yardstick(), tiny_local(tiny_llama(), 2)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const strait_stage_spec spec = tiny_spec(shapes[i], 1, 12);
        struct strait_stage *stage = NULL;
        tiny_batch batch;
        tiny_fill(&batch, &shapes[i], 5);
        CHECK_OK(strait_stage_open(&spec, backend, &stage));
        tiny_randomise(stage, 4);
        feed_all(stage, &batch, 1, alone);
        feed_all(stage, &batch, 2, together);
        assert_memory_equal(alone, together, sizeof alone);
        feed_all(stage, &batch, 5, together);
        assert_memory_equal(alone, together, sizeof alone);
        strait_stage_close(&stage);
    }
    strait_backend_close(&backend);
}

static void samples_and_rejects_rows_outside(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(tiny_yardstick(), 1, 12);
    struct strait_stage *stage = NULL;
    struct strait_generator *g = NULL;
    const float *logits = NULL;
    int32_t drawn[2] = {-1, -1}, best = 0;
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 4);
    CHECK_OK(strait_generator_open(
        stage, (strait_generator_spec){.n_sequences = 2, .n_rows = 3, .n_positions = 5}, &g));
    const strait_token_row rows[] = {{.token = 3, .sequence = 1}, {.token = 9}};
    const strait_sample_row how[] = {{.top_p = 1, .penalty = 1, .sequence = 1},
                                     {.top_p = 1, .penalty = 100, .sequence = 0}};
    CHECK_OK(strait_generator_begin(g, rows, 2));
    CHECK_OK(strait_generator_run(g));
    CHECK_OK(strait_generator_logits(g, 2, &logits));
    for (int32_t i = 1; i < 37; i++)
        if (logits[37 + i] > logits[37 + best]) best = i;
    unsigned char seen[37] = {0};
    CHECK_OK(strait_generator_set_seen(g, 0, seen));
    CHECK_OK(strait_generator_sample(g, how, 2, drawn));
    assert_int_equal(drawn[1], best);
    seen[best] = 1;
    CHECK_OK(strait_generator_set_seen(g, 0, seen));
    CHECK_OK(strait_generator_sample(g, how, 2, drawn));
    assert_int_not_equal(drawn[1], best);
    CHECK_FAILS(strait_generator_sample(g, how, 3, drawn), STRAIT_EINVAL, "3 rows of 2");
    CHECK_FAILS(strait_generator_begin(g, &(strait_token_row){.position = 5}, 1), STRAIT_EINVAL,
                "5 tokens is full");
    CHECK_FAILS(strait_generator_begin(g, &(strait_token_row){.sequence = 2}, 1), STRAIT_EINVAL,
                "no sequence 2");
    CHECK_FAILS(strait_generator_begin(g, rows, 4), STRAIT_EINVAL, "4 rows");
    strait_generator_close(&g);
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_the_whole_sequence),
        cmocka_unit_test(yardstick_matches_the_whole_sequence),
        cmocka_unit_test(local_parts_match_the_whole_sequence),
        cmocka_unit_test(split_model_gives_the_same_logits),
        cmocka_unit_test(sequences_do_not_depend_on_each_other),
        cmocka_unit_test(samples_and_rejects_rows_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
