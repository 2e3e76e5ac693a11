/* context.c - a pipeline of stages connected by the codec strait, variant context. Its gradients,
 * through model and codecs together, must equal central differences, and tokens that cross one by
 * one must give the same losses as whole sequences. */
#include "../model/differences.h"
#include "codec/codec.h"
#include "model/generator.h"

enum {
    STAGES = 3,
    SEQUENCES = 2,
    SEQ_LEN = 5,
    TOKENS = SEQUENCES * SEQ_LEN
};

/* Stages of one layer each, connected as in a run, but in one process and without a network. */
struct pipeline {
    struct strait_backend *backend;
    struct strait_stage *stages[STAGES];
    struct strait_generator *generators[STAGES];
    struct strait_codec *senders[STAGES], *receivers[STAGES]; // per stage; NULL at the ends
    strait_tensor wires[STAGES][2]; // packed bytes per boundary and direction
    tiny_batch batch;
    int64_t rows; // tokens per crossing
};

/* Blocks with every optional part, so that gradients of all of them are checked. */
static strait_shape full_shape(void) {
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
                              .table_rows = shape->table_rows,
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

/* Random parameters instead of the initial zeros, which would hide wrong gradients. The values
 * depend on the name only, so both sides of a boundary agree. */
static void randomise_codec(struct strait_codec *codec) {
    strait_param p;
    for (int i = 0; strait_codec_get_param(codec, i, &p) == STRAIT_OK; i++) {
        const size_t n = (size_t)(p.value.rows * p.value.cols);
        strait_rng_normals((strait_rng){8, strait_rng_stream(p.name)}, 0, p.value.data, n);
        for (size_t v = 0; v < n; v++)
            ((float *)p.value.data)[v] *= 0.4f;
    }
}

static void open_codecs(struct pipeline *pipe, const strait_shape *shape, int bits) {
    for (int b = 0; b < STAGES - 1; b++) {
        const strait_codec_spec spec = codec_spec(shape, b, bits, pipe->rows);
        CHECK_OK(strait_codec_open(&spec, STRAIT_SENDER, pipe->backend, &pipe->senders[b]));
        CHECK_OK(strait_codec_open(&spec, STRAIT_RECEIVER, pipe->backend, &pipe->receivers[b + 1]));
        randomise_codec(pipe->senders[b]);
        randomise_codec(pipe->receivers[b + 1]);
        for (int direction = 0; direction < 2; direction++) {
            const size_t bytes = strait_codec_wire_bytes(&spec, (strait_direction)direction);
            pipe->wires[b][direction] = (strait_tensor){NULL, STRAIT_I8, 1, (int64_t)bytes};
            CHECK_OK(strait_alloc(bytes, 1, "wire", &pipe->wires[b][direction].data));
        }
    }
    for (int i = 0; i < STAGES; i++)
        CHECK_OK(strait_codec_join(pipe->receivers[i], pipe->senders[i]));
}

static void pipeline_open(struct pipeline *pipe, strait_shape shape, int bits, int is_stepwise) {
    *pipe = (struct pipeline){.backend = tiny_backend(0), .rows = is_stepwise ? 1 : TOKENS};
    tiny_fill(&pipe->batch, &shape, 3);
    for (int i = 0; i < STAGES; i++) {
        strait_stage_spec spec = tiny_spec(shape, is_stepwise ? 1 : SEQUENCES,
                                           is_stepwise ? 1 : SEQ_LEN);
        spec.layers = (strait_layer_range){i, i + 1};
        CHECK_OK(strait_stage_open(&spec, pipe->backend, &pipe->stages[i]));
        tiny_randomise(pipe->stages[i], 11);
        if (is_stepwise)
            CHECK_OK(strait_generator_open(pipe->stages[i],
                                           (strait_generator_spec){.n_sequences = 1, .n_rows = 1},
                                           &pipe->generators[i]));
    }
    open_codecs(pipe, &shape, bits);
}

static void pipeline_close(struct pipeline *pipe) {
    for (int i = 0; i < STAGES; i++) {
        strait_codec_close(&pipe->senders[i]);
        strait_codec_close(&pipe->receivers[i]);
        strait_generator_close(&pipe->generators[i]);
        strait_stage_close(&pipe->stages[i]);
        for (int direction = 0; direction < 2; direction++)
            strait_alloc_free(pipe->wires[i][direction].data);
    }
    strait_backend_close(&pipe->backend);
}

static strait_crossing at_stage(struct pipeline *pipe, int i) {
    return (strait_crossing){.stream = strait_stage_stream(pipe->stages[i]),
                             .tokens = tiny_ids(pipe->batch.tokens, TOKENS),
                             .input = strait_stage_first_block_input(pipe->stages[i], 0)};
}

/* Losses of the whole pipeline. */
static strait_tensor forward(struct pipeline *pipe, float scale) {
    const strait_tensor tokens = tiny_ids(pipe->batch.tokens, TOKENS);
    strait_tensor output;
    for (int i = 0;; i++) {
        CHECK_OK(strait_stage_forward(pipe->stages[i], 0, tokens));
        if (i == STAGES - 1) break;
        const strait_crossing at = at_stage(pipe, i);
        CHECK_OK(strait_stage_output(pipe->stages[i], &output));
        CHECK_OK(strait_codec_act_pack(pipe->senders[i], &at, pipe->wires[i][0], output));
        CHECK_OK(strait_codec_act_unpack(pipe->receivers[i + 1], &at,
                                         strait_stage_input(pipe->stages[i + 1], 0),
                                         pipe->wires[i][0]));
    }
    CHECK_OK(strait_stage_loss(pipe->stages[STAGES - 1], tiny_ids(pipe->batch.targets, TOKENS),
                               scale, &output));
    return output;
}

static double loss_of(void *user) {
    const strait_tensor losses = forward(user, 0.0f);
    double sum = 0.0;
    for (int i = 0; i < TOKENS; i++)
        sum += (double)((const float *)losses.data)[i];
    return sum / TOKENS;
}

static void backward(struct pipeline *pipe) {
    for (int i = STAGES - 1; i >= 0; i--) {
        struct strait_stage *stage = pipe->stages[i];
        const strait_crossing at = at_stage(pipe, i);
        const strait_tensor d = strait_stage_input_gradient(stage);
        if (pipe->senders[i] != NULL)
            CHECK_OK(strait_codec_grad_unpack(
                pipe->senders[i], &at, strait_stage_output_gradient(stage), pipe->wires[i][1]));
        CHECK_OK(strait_stage_backward(stage, 0, 0));
        if (pipe->senders[i] != NULL) CHECK_OK(strait_codec_input_grad(pipe->senders[i], &at, d));
        CHECK_OK(strait_stage_backward_input(stage, 0));
        if (i > 0)
            CHECK_OK(strait_codec_grad_pack(pipe->receivers[i], &at, pipe->wires[i - 1][1], d));
        else
            CHECK_OK(strait_stage_backward_embedding(stage, tiny_ids(pipe->batch.tokens, TOKENS)));
        if (pipe->senders[i] != NULL) CHECK_OK(strait_codec_param_grads(pipe->senders[i], &at));
        if (pipe->receivers[i] != NULL) CHECK_OK(strait_codec_param_grads(pipe->receivers[i], &at));
    }
}

static void check_codec(struct pipeline *pipe, const struct strait_codec *codec) {
    strait_param p;
    for (int i = 0; codec != NULL && strait_codec_get_param(codec, i, &p) == STRAIT_OK; i++)
        check_differences(loss_of, pipe, &p);
}

static void gradients_equal_central_differences(void **state) {
    (void)state;
    static struct pipeline pipe;
    pipeline_open(&pipe, full_shape(), 32, 0);
    (void)forward(&pipe, 1.0f / TOKENS);
    backward(&pipe);
    for (int i = 0; i < STAGES; i++) {
        int n = 0;
        const strait_param *params = strait_stage_params(pipe.stages[i], &n);
        for (int p = 0; p < n; p++)
            check_differences(loss_of, &pipe, &params[p]);
        check_codec(&pipe, pipe.senders[i]);
        check_codec(&pipe, pipe.receivers[i]);
    }
    pipeline_close(&pipe);
}

/* -log softmax(logits)[target] */
static double cross_entropy(const float *logits, int64_t n, int32_t target) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

static const float *run_token(struct pipeline *pipe, int64_t position, int32_t token) {
    const float *logits = NULL;
    for (int i = 0; i < STAGES; i++) {
        strait_tensor output;
        struct strait_generator *g = pipe->generators[i];
        const strait_token_row row = {.token = token, .position = (int32_t)position};
        CHECK_OK(strait_generator_begin(g, &row, 1));
        CHECK_OK(strait_generator_run(g));
        if (i == STAGES - 1) break;
        const strait_crossing at = {.stream = strait_stage_stream(pipe->stages[i]),
                                    .tokens = tiny_ids(&token, 1),
                                    .input = strait_generator_first_block_input(g),
                                    .past = position};
        CHECK_OK(strait_generator_output(g, &output));
        CHECK_OK(strait_codec_act_pack(pipe->senders[i], &at, pipe->wires[i][0], output));
        CHECK_OK(strait_codec_act_unpack(pipe->receivers[i + 1], &at,
                                         strait_generator_input(pipe->generators[i + 1]),
                                         pipe->wires[i][0]));
    }
    CHECK_OK(strait_generator_logits(pipe->generators[STAGES - 1], 1, &logits));
    return logits;
}

/* At 4 bits and at 32: the quantisation grid of a token must not depend on other tokens that cross
 * with it. */
static void single_tokens_match_whole_sequences(void **state) {
    (void)state;
    static struct pipeline whole, single;
    const strait_shape shape = full_shape();
    for (int bits = 4; bits <= 32; bits += 28) {
        pipeline_open(&whole, shape, bits, 0);
        pipeline_open(&single, shape, bits, 1);
        const strait_tensor losses = forward(&whole, 0.0f);
        for (int i = 0; i < TOKENS; i++) {
            const float *logits = run_token(&single, i % SEQ_LEN, whole.batch.tokens[i]);
            CHECK_NEAR(cross_entropy(logits, shape.vocab, whole.batch.targets[i]),
                       (double)((const float *)losses.data)[i], 1e-4);
        }
        pipeline_close(&whole);
        pipeline_close(&single);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(single_tokens_match_whole_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
