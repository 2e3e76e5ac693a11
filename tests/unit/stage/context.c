/* context.c - stages joined by strait's variant context: their gradients, all parts together,
 * against central differences; and tokens that cross one by one against whole sequences. */
#include "../model/differences.h"
#include "codec/codec.h"
#include "model/generator.h"

enum {
    STAGES = 3,
    SEQUENCES = 2,
    SEQ_LEN = 5,
    TOKENS = SEQUENCES * SEQ_LEN
};

/* Stages of one layer each, as a run has them. */
struct line {
    struct strait_backend *backend;
    struct strait_stage *stages[STAGES];
    struct strait_generator *generators[STAGES];
    struct strait_codec *heads[STAGES], *tails[STAGES]; // of a stage; NULL at the ends
    strait_tensor wires[STAGES][2];
    tiny_batch batch;
    int64_t rows;
};

/* Every block with all that a block can have. */
static strait_shape shape_of_all(void) {
    strait_shape shape = tiny_local(tiny_yardstick(), 1);
    shape.has_qkv_conv = 1;
    return shape;
}

static strait_codec_spec codec_spec(const strait_shape *shape, int boundary, int bits,
                                    int64_t rows) {
    strait_codec_spec spec = {.name = "strait",
                              .variant = "context",
                              .rows = rows,
                              .cols = shape->width,
                              .vocab = shape->vocab,
                              .has_gates = 1,
                              .keep = 5,
                              .hidden = 7,
                              .encoder = 9,
                              .bits = bits,
                              .boundary = boundary,
                              .n_boundaries = STAGES - 1,
                              .n_slots = 1,
                              .seq_len = rows == 1 ? 1 : SEQ_LEN,
                              .is_stepwise = rows == 1,
                              .seed = 3};
    CHECK_OK(strait_codec_check(&spec));
    return spec;
}

/* Numbers in place of zeros, the same in every codec of this name. */
static void shake(struct strait_codec *codec) {
    strait_param p;
    for (int i = 0; strait_codec_get_param(codec, i, &p) == STRAIT_OK; i++) {
        const size_t n = (size_t)(p.value.rows * p.value.cols);
        strait_rng_normals((strait_rng){8, strait_rng_stream(p.name)}, 0, p.value.data, n);
        for (size_t v = 0; v < n; v++)
            ((float *)p.value.data)[v] *= 0.4f;
    }
}

static void open_codecs(struct line *l, const strait_shape *shape, int bits) {
    for (int b = 0; b < STAGES - 1; b++) {
        const strait_codec_spec spec = codec_spec(shape, b, bits, l->rows);
        CHECK_OK(strait_codec_open(&spec, STRAIT_SENDER, l->backend, &l->heads[b]));
        CHECK_OK(strait_codec_open(&spec, STRAIT_RECEIVER, l->backend, &l->tails[b + 1]));
        shake(l->heads[b]);
        shake(l->tails[b + 1]);
        for (int way = 0; way < 2; way++) {
            const size_t bytes = strait_codec_wire_bytes(&spec, (strait_direction)way);
            l->wires[b][way] = (strait_tensor){NULL, STRAIT_I8, 1, (int64_t)bytes};
            CHECK_OK(strait_alloc(bytes, 1, "wire", &l->wires[b][way].data));
        }
    }
    for (int i = 0; i < STAGES; i++)
        CHECK_OK(strait_codec_join(l->tails[i], l->heads[i]));
}

static void line_open(struct line *l, strait_shape shape, int bits, int is_stepwise) {
    *l = (struct line){.backend = tiny_backend(0), .rows = is_stepwise ? 1 : TOKENS};
    tiny_fill(&l->batch, &shape, 3);
    for (int i = 0; i < STAGES; i++) {
        strait_stage_spec spec = tiny_spec(shape, is_stepwise ? 1 : SEQUENCES,
                                           is_stepwise ? 1 : SEQ_LEN);
        spec.layers = (strait_layer_range){i, i + 1};
        CHECK_OK(strait_stage_open(&spec, l->backend, &l->stages[i]));
        tiny_randomise(l->stages[i], 11);
        if (is_stepwise) CHECK_OK(strait_generator_open(l->stages[i], &l->generators[i]));
    }
    open_codecs(l, &shape, bits);
}

static void line_close(struct line *l) {
    for (int i = 0; i < STAGES; i++) {
        strait_codec_close(&l->heads[i]);
        strait_codec_close(&l->tails[i]);
        strait_generator_close(&l->generators[i]);
        strait_stage_close(&l->stages[i]);
        for (int way = 0; way < 2; way++)
            strait_alloc_free(l->wires[i][way].data);
    }
    strait_backend_close(&l->backend);
}

static strait_crossing at_stage(struct line *l, int i) {
    return (strait_crossing){.stream = strait_stage_stream(l->stages[i]),
                             .tokens = tiny_ids(l->batch.tokens, TOKENS),
                             .input = strait_stage_first_block_input(l->stages[i], 0)};
}

/* Losses of the whole line. */
static strait_tensor forward(struct line *l, float scale) {
    const strait_tensor tokens = tiny_ids(l->batch.tokens, TOKENS);
    strait_tensor made;
    for (int i = 0;; i++) {
        CHECK_OK(strait_stage_forward(l->stages[i], 0, tokens));
        if (i == STAGES - 1) break;
        const strait_crossing at = at_stage(l, i);
        CHECK_OK(strait_stage_output(l->stages[i], &made));
        CHECK_OK(strait_codec_act_pack(l->heads[i], &at, l->wires[i][0], made));
        CHECK_OK(strait_codec_act_unpack(l->tails[i + 1], &at,
                                         strait_stage_input(l->stages[i + 1], 0), l->wires[i][0]));
    }
    CHECK_OK(
        strait_stage_loss(l->stages[STAGES - 1], tiny_ids(l->batch.targets, TOKENS), scale, &made));
    return made;
}

static double loss_of(void *user) {
    const strait_tensor losses = forward(user, 0.0f);
    double sum = 0.0;
    for (int i = 0; i < TOKENS; i++)
        sum += (double)((const float *)losses.data)[i];
    return sum / TOKENS;
}

static void backward(struct line *l) {
    for (int i = STAGES - 1; i >= 0; i--) {
        struct strait_stage *stage = l->stages[i];
        const strait_crossing at = at_stage(l, i);
        const strait_tensor d = strait_stage_input_gradient(stage);
        if (l->heads[i] != NULL)
            CHECK_OK(strait_codec_grad_unpack(l->heads[i], &at, strait_stage_output_gradient(stage),
                                              l->wires[i][1]));
        CHECK_OK(strait_stage_backward(stage, 0, 0));
        if (l->heads[i] != NULL) CHECK_OK(strait_codec_input_grad(l->heads[i], &at, d));
        CHECK_OK(strait_stage_backward_input(stage, 0));
        if (i > 0)
            CHECK_OK(strait_codec_grad_pack(l->tails[i], &at, l->wires[i - 1][1], d));
        else
            CHECK_OK(strait_stage_backward_embedding(stage, tiny_ids(l->batch.tokens, TOKENS)));
        if (l->heads[i] != NULL) CHECK_OK(strait_codec_param_grads(l->heads[i], &at));
        if (l->tails[i] != NULL) CHECK_OK(strait_codec_param_grads(l->tails[i], &at));
    }
}

static void check_codec(struct line *l, const struct strait_codec *codec) {
    strait_param p;
    for (int i = 0; codec != NULL && strait_codec_get_param(codec, i, &p) == STRAIT_OK; i++)
        check_differences(loss_of, l, &p);
}

static void gradients_equal_differences(void **state) {
    (void)state;
    static struct line l;
    line_open(&l, shape_of_all(), 32, 0);
    (void)forward(&l, 1.0f / TOKENS);
    backward(&l);
    for (int i = 0; i < STAGES; i++) {
        int n = 0;
        const strait_param *params = strait_stage_params(l.stages[i], &n);
        for (int p = 0; p < n; p++)
            check_differences(loss_of, &l, &params[p]);
        check_codec(&l, l.heads[i]);
        check_codec(&l, l.tails[i]);
    }
    line_close(&l);
}

/* -log softmax(logits)[target] */
static double surprise(const float *logits, int64_t n, int32_t target) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

static const float *step(struct line *l, int64_t place, int32_t token) {
    const float *logits = NULL;
    for (int i = 0; i < STAGES; i++) {
        strait_tensor made;
        struct strait_generator *g = l->generators[i];
        CHECK_OK(strait_generator_embed(g, token));
        CHECK_OK(strait_generator_run(g));
        if (i == STAGES - 1) break;
        const strait_crossing at = {.stream = strait_stage_stream(l->stages[i]),
                                    .tokens = tiny_ids(&token, 1),
                                    .input = strait_generator_first_block_input(g),
                                    .past = place};
        CHECK_OK(strait_generator_output(g, &made));
        CHECK_OK(strait_codec_act_pack(l->heads[i], &at, l->wires[i][0], made));
        CHECK_OK(strait_codec_act_unpack(
            l->tails[i + 1], &at, strait_generator_input(l->generators[i + 1]), l->wires[i][0]));
    }
    CHECK_OK(strait_generator_logits(l->generators[STAGES - 1], &logits));
    return logits;
}

/* At 32 bits and at 4: the top of a crossing does not move the grid of a token. */
static void one_by_one_says_the_same(void **state) {
    (void)state;
    static struct line whole, single;
    const strait_shape shape = shape_of_all();
    for (int bits = 4; bits <= 32; bits += 28) {
        line_open(&whole, shape, bits, 0);
        line_open(&single, shape, bits, 1);
        const strait_tensor losses = forward(&whole, 0.0f);
        for (int i = 0; i < TOKENS; i++) {
            if (i % SEQ_LEN == 0)
                for (int s = 0; s < STAGES; s++)
                    strait_generator_reset(single.generators[s]);
            const float *logits = step(&single, i % SEQ_LEN, whole.batch.tokens[i]);
            CHECK_NEAR(surprise(logits, shape.vocab, whole.batch.targets[i]),
                       (double)((const float *)losses.data)[i], 1e-4);
        }
        line_close(&whole);
        line_close(&single);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(one_by_one_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
