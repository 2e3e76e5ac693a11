/* bottleneck.c - boundaries that carry codes of KEEP values: what the blocks beside them compute,
 * gradients across boundaries, and the channels that pass through unchanged. */
#include "differences.h"
#include "model/generator.h"

enum {
    KEEP = 4,
    LAYERS = 4,
    STAGES_MAX = 4,
    SEQUENCES = 2,
    SEQ_LEN = 5,
    TOKENS = SEQUENCES * SEQ_LEN
};

/* Stages with plain copies between them. */
struct chain {
    struct strait_backend *backend;
    struct strait_stage *stages[STAGES_MAX];
    int n;
    tiny_batch batch;
};

static strait_shape with_bottleneck(strait_shape shape) {
    shape.layers = LAYERS;
    shape.bottleneck = KEEP;
    return shape;
}

/* `layers`: number of layers of each stage. */
static void open_chain(struct chain *c, strait_stage_spec spec, const int *layers) {
    *c = (struct chain){.backend = tiny_backend(0)};
    for (int first = 0; first < spec.shape.layers; c->n++) {
        spec.layers = (strait_layer_range){first, first + layers[c->n]};
        CHECK_OK(strait_stage_open(&spec, c->backend, &c->stages[c->n]));
        tiny_randomise(c->stages[c->n], 11);
        CHECK_OK(strait_stage_zero_gradients(c->stages[c->n]));
        first = spec.layers.last;
    }
    tiny_fill(&c->batch, &spec.shape, 3);
}

static void close_chain(struct chain *c) {
    for (int i = 0; i < c->n; i++)
        strait_stage_close(&c->stages[i]);
    strait_backend_close(&c->backend);
}

static void copy(strait_tensor to, strait_tensor from) {
    assert_int_equal(to.rows, from.rows);
    assert_int_equal(to.cols, from.cols);
    memcpy(to.data, from.data, strait_tensor_bytes(to));
}

static double forward(struct chain *c, float scale) {
    const strait_tensor tokens = tiny_ids(c->batch.tokens, TOKENS);
    strait_tensor output;
    for (int i = 0; i < c->n - 1; i++) {
        CHECK_OK(strait_stage_forward(c->stages[i], 0, tokens));
        CHECK_OK(strait_stage_output(c->stages[i], &output));
        assert_int_equal(output.cols, KEEP);
        copy(strait_stage_input(c->stages[i + 1], 0), output);
    }
    CHECK_OK(strait_stage_forward(c->stages[c->n - 1], 0, tokens));
    CHECK_OK(
        strait_stage_loss(c->stages[c->n - 1], tiny_ids(c->batch.targets, TOKENS), scale, &output));
    double sum = 0.0;
    for (int64_t i = 0; i < TOKENS; i++)
        sum += (double)((const float *)output.data)[i];
    return sum / TOKENS;
}

static double loss_of(void *user) {
    return forward(user, 0.0f);
}

static void backward(struct chain *c, int defers) {
    for (int i = c->n - 1; i >= 0; i--) {
        CHECK_OK(strait_stage_backward(c->stages[i], 0, defers));
        if (i > 0)
            copy(strait_stage_output_gradient(c->stages[i - 1]),
                 strait_stage_input_gradient(c->stages[i]));
    }
    CHECK_OK(strait_stage_backward_embedding(c->stages[0], tiny_ids(c->batch.tokens, TOKENS)));
    for (int i = 0; defers && i < c->n; i++)
        CHECK_OK(strait_stage_backward_weights(c->stages[i], 0));
}

static strait_param *find(struct strait_stage *stage, const char *ending) {
    int n = 0;
    strait_param *params = strait_stage_params(stage, &n);
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(params[i].name), tail = strlen(ending);
        if (length >= tail && strcmp(params[i].name + length - tail, ending) == 0)
            return &params[i];
    }
    return NULL;
}

/* Finite differences are wrong across the kink of relu. A first channel that is large everywhere,
 * and a dec that reads mostly that channel, keep its inputs away from 0. */
static void avoid_relu_kink(struct chain *c) {
    const strait_param *table = find(c->stages[0], "embed.table");
    for (int64_t i = 0; i < table->value.rows; i++)
        ((float *)table->value.data)[i * table->value.cols] += 4.0f;
    for (int i = 1; i < c->n; i++) {
        float *dec = find(c->stages[i], ".dec")->value.data;
        for (int64_t j = 0; j < (int64_t)find(c->stages[i], ".dec")->value.rows * KEEP; j++)
            if (j % KEEP == 0) dec[j] = dec[j] < 0.0f ? -1.0f : 1.0f;
    }
}

static void check_gradients(strait_shape shape, const int *layers) {
    struct chain c;
    open_chain(&c, tiny_spec(with_bottleneck(shape), SEQUENCES, SEQ_LEN), layers);
    avoid_relu_kink(&c);
    (void)forward(&c, 1.0f / TOKENS);
    backward(&c, 0);
    for (int i = 0; i < c.n; i++) {
        int n = 0;
        const strait_param *params = strait_stage_params(c.stages[i], &n);
        for (int p = 0; p < n; p++)
            check_differences(loss_of, &c, &params[p]);
    }
    close_chain(&c);
}

static void gradients_match_differences_across_boundaries(void **state) {
    (void)state;
    check_gradients(tiny_llama(), (const int[]){2, 2});
    check_gradients(tiny_llama(), (const int[]){1, 1, 1, 1});
    check_gradients(tiny_yardstick(), (const int[]){1, 2, 1});
}

/* Convolutions inside attention and MLP, and value tables: everything but the residual stream. */
static strait_shape with_additions(strait_shape shape) {
    shape.conv = 3;
    shape.has_inner_conv = shape.has_qkv_conv = shape.has_value_tables = 1;
    return shape;
}

static void additions_inside_sublayers_have_gradients(void **state) {
    (void)state;
    check_gradients(with_additions(tiny_llama()), (const int[]){1, 2, 1});
    check_gradients(with_additions(tiny_yardstick()), (const int[]){2, 2});
}

/* Nothing keeps the inputs of relu away from 0 here, but with this cut none is near it. */
static void gradients_match_without_the_identity_path(void **state) {
    (void)state;
    strait_shape shape = tiny_llama();
    shape.drops_identity = 1;
    check_gradients(shape, (const int[]){2, 2});
}

/* Of the stream only what is encoded crosses: with enc at zero the code is zero. */
static void nothing_crosses_without_the_identity_path(void **state) {
    (void)state;
    for (int drops = 0; drops < 2; drops++) {
        struct chain c;
        strait_shape shape = with_bottleneck(tiny_llama());
        shape.drops_identity = drops;
        open_chain(&c, tiny_spec(shape, SEQUENCES, SEQ_LEN), (const int[]){2, 2});
        const strait_param *enc = find(c.stages[0], ".enc");
        memset(enc->value.data, 0, strait_tensor_bytes(enc->value));
        (void)forward(&c, 1.0f);
        const float *code = strait_stage_input(c.stages[1], 0).data;
        for (int i = 0; i < TOKENS * KEEP; i++)
            assert_true((code[i] == 0.0f) == drops);
        close_chain(&c);
    }
}

/* Deferred or recomputed, gradients have the same bits. */
static void deferring_and_recomputing_keep_the_bits(void **state) {
    (void)state;
    static const int layers[] = {1, 1, 2};
    const strait_stage_spec plain = tiny_spec(with_bottleneck(tiny_llama()), SEQUENCES, SEQ_LEN);
    strait_stage_spec deferring = plain, recomputing = plain;
    deferring.can_defer = 1;
    recomputing.recomputes = 1;
    struct chain chains[3];
    open_chain(&chains[0], plain, layers);
    open_chain(&chains[1], deferring, layers);
    open_chain(&chains[2], recomputing, layers);
    double losses[3];
    for (int w = 0; w < 3; w++) {
        losses[w] = forward(&chains[w], 1.0f / TOKENS);
        backward(&chains[w], w == 1);
        assert_true(losses[w] == losses[0]);
    }
    for (int i = 0; i < chains[0].n; i++) {
        int n = 0;
        const strait_param *params = strait_stage_params(chains[0].stages[i], &n);
        for (int w = 1; w < 3; w++) {
            const strait_param *others = strait_stage_params(chains[w].stages[i], &n);
            for (int p = 0; p < n; p++)
                assert_memory_equal(params[p].grad.data, others[p].grad.data,
                                    strait_tensor_bytes(params[p].grad));
        }
    }
    for (int w = 0; w < 3; w++)
        close_chain(&chains[w]);
}

static void set_zero(struct strait_stage *stage, const char *ending) {
    const strait_param *param = find(stage, ending);
    if (param != NULL) memset(param->value.data, 0, strait_tensor_bytes(param->value));
}

/* With enc and dec at zero, the code of stage 0 reaches the last stage unchanged, and so does the
 * gradient on the way back. */
static void first_channels_pass_unchanged(void **state) {
    (void)state;
    struct chain c;
    open_chain(&c, tiny_spec(with_bottleneck(tiny_llama()), SEQUENCES, SEQ_LEN),
               (const int[]){1, 1, 1, 1});
    for (int i = 0; i < c.n; i++) {
        set_zero(c.stages[i], ".enc");
        set_zero(c.stages[i], ".dec");
    }
    (void)forward(&c, 1.0f);
    backward(&c, 0);
    const strait_tensor first = strait_stage_input(c.stages[1], 0);
    const strait_tensor gradient = strait_stage_input_gradient(c.stages[3]);
    int n_live = 0;
    for (int i = 0; i < TOKENS * KEEP; i++)
        n_live += ((const float *)first.data)[i] != 0.0f &&
                  ((const float *)gradient.data)[i] != 0.0f;
    assert_int_equal(n_live, TOKENS * KEEP);
    for (int i = 2; i < c.n; i++) {
        assert_memory_equal(strait_stage_input(c.stages[i], 0).data, first.data,
                            strait_tensor_bytes(first));
        assert_memory_equal(strait_stage_output_gradient(c.stages[i - 1]).data, gradient.data,
                            strait_tensor_bytes(gradient));
    }
    close_chain(&c);
}

enum {
    D = 15,
    F = 21,
    HEADS = 4,
    KEYS = 2,
    P = 6
};

static double at(const struct strait_stage *stage, const char *name, int row, int col) {
    const strait_param *p = find((struct strait_stage *)stage, name);
    return (double)((const float *)p->value.data)[row * p->value.cols + col];
}

static double silu(double x) {
    return x / (1.0 + exp(-x));
}

static void norm(const struct strait_stage *stage, const char *gain, const double *x, double *y) {
    double squares = 0.0;
    for (int i = 0; i < D; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < D; i++)
        y[i] = x[i] / sqrt(squares / D + 1e-5) * at(stage, gain, 0, i);
}

static double dot(const struct strait_stage *stage, const char *name, int row, const double *x,
                  int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += at(stage, name, row, i) * x[i];
    return sum;
}

/* The formula of bottleneck.h in double precision, for a block that decodes and encodes, on a
 * single token: attention then returns its value. */
static void reference_block(const struct strait_stage *s, const double *z, double *out) {
    double u[D], n[D], v[KEYS * P], attended[HEADS * P], a[D], h[F], o[D];
    for (int i = 0; i < D; i++)
        u[i] = fmax(dot(s, ".dec", i, z, KEEP), 0.0);
    norm(s, "attention.norm", u, n);
    for (int i = 0; i < KEYS * P; i++)
        v[i] = dot(s, "attention.v", i, n, D);
    for (int i = 0; i < HEADS * P; i++)
        attended[i] = v[i / P / (HEADS / KEYS) * P + i % P];
    for (int i = 0; i < D; i++)
        a[i] = (i < KEEP ? z[i] : 0.0) + dot(s, "attention.out", i, attended, HEADS * P);
    norm(s, "mlp.norm", a, n);
    for (int i = 0; i < F; i++)
        h[i] = silu(dot(s, "mlp.gate", i, n, D)) * dot(s, "mlp.up", i, n, D);
    for (int i = 0; i < D; i++)
        o[i] = silu(dot(s, "mlp.down", i, h, F));
    for (int i = 0; i < KEEP; i++)
        out[i] = a[i] + dot(s, ".enc", i, o, D);
}

static void blocks_match_the_formula(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    strait_stage_spec spec = tiny_spec(with_bottleneck(tiny_llama()), 3, 1);
    spec.layers = (strait_layer_range){1, 2};
    struct strait_stage *stage = NULL;
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 17);
    const strait_tensor input = strait_stage_input(stage, 0);
    strait_tensor output;
    strait_rng_normals((strait_rng){5, 5}, 0, input.data, (size_t)3 * KEEP);
    CHECK_OK(strait_stage_forward(stage, 0, (strait_tensor){0}));
    CHECK_OK(strait_stage_output(stage, &output));
    for (int t = 0; t < 3; t++) {
        double z[KEEP], expected[KEEP];
        for (int i = 0; i < KEEP; i++)
            z[i] = (double)((const float *)input.data)[t * KEEP + i];
        reference_block(stage, z, expected);
        for (int i = 0; i < KEEP; i++)
            CHECK_NEAR((double)((const float *)output.data)[t * KEEP + i], expected[i], 2e-5);
    }
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

/* -log softmax(logits)[target]. */
static double cross_entropy(const float *logits, int64_t n, int32_t target) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return log(sum) - (double)logits[target];
}

/* Generation, token by token across boundaries, has the losses of the whole sequence. */
static void generation_matches_the_whole_sequence(void **state) {
    (void)state;
    struct chain c;
    struct strait_generator *generators[STAGES_MAX] = {NULL};
    open_chain(&c, tiny_spec(with_bottleneck(tiny_llama()), SEQUENCES, SEQ_LEN),
               (const int[]){1, 1, 2});
    const strait_generator_spec one = {1, 0, 1};
    double sum = 0.0, expected = forward(&c, 0.0f);
    for (int i = 0; i < c.n; i++)
        CHECK_OK(strait_generator_open(c.stages[i], one, &generators[i]));
    for (int t = 0; t < TOKENS; t++) {
        const float *logits = NULL;
        for (int i = 0; i < c.n; i++) {
            strait_tensor output;
            const strait_token_row row = {c.batch.tokens[t], 0, t % SEQ_LEN};
            CHECK_OK(strait_generator_begin(generators[i], &row, 1));
            CHECK_OK(strait_generator_run(generators[i]));
            if (i == c.n - 1) break;
            CHECK_OK(strait_generator_output(generators[i], &output));
            copy(strait_generator_input(generators[i + 1]), output);
        }
        CHECK_OK(strait_generator_logits(generators[c.n - 1], 1, &logits));
        sum += cross_entropy(logits, tiny_llama().vocab, c.batch.targets[t]);
    }
    CHECK_NEAR(sum / TOKENS, expected, 1e-5);
    for (int i = 0; i < c.n; i++)
        strait_generator_close(&generators[i]);
    close_chain(&c);
}

/* 2 D KEEP parameters per boundary; initial deviation 1 / sqrt(inputs), in every family. */
static void adds_two_matrices_per_boundary(void **state) {
    (void)state;
    struct chain c;
    const strait_shape shape = with_bottleneck(tiny_yardstick());
    open_chain(&c, tiny_spec(shape, SEQUENCES, SEQ_LEN), (const int[]){1, 2, 1});
    int64_t sum = 0;
    for (int i = 0; i < c.n; i++) {
        int n = 0;
        const strait_param *params = strait_stage_params(c.stages[i], &n);
        for (int p = 0; p < n; p++)
            sum += params[p].value.rows * params[p].value.cols;
        assert_true((find(c.stages[i], ".dec") != NULL) == (i > 0));
        assert_true((find(c.stages[i], ".enc") != NULL) == (i < 2));
    }
    assert_int_equal(sum, strait_shape_params(&shape) + (int64_t)2 * 2 * D * KEEP);
    assert_string_equal(find(c.stages[1], ".dec")->name, "blocks.1.dec");
    assert_string_equal(find(c.stages[1], ".enc")->name, "blocks.2.enc");
    CHECK_OK(strait_stage_init(c.stages[1], 7));
    double squares[2] = {0.0, 0.0};
    for (int i = 0; i < D * KEEP; i++) {
        squares[0] += pow(at(c.stages[1], ".dec", 0, i), 2.0);
        squares[1] += pow(at(c.stages[1], ".enc", 0, i), 2.0);
    }
    CHECK_NEAR(squares[0] / (D * KEEP), 1.0 / KEEP, 0.1);
    CHECK_NEAR(squares[1] / (D * KEEP), 1.0 / D, 0.03);
    close_chain(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences_across_boundaries),
        cmocka_unit_test(additions_inside_sublayers_have_gradients),
        cmocka_unit_test(gradients_match_without_the_identity_path),
        cmocka_unit_test(nothing_crosses_without_the_identity_path),
        cmocka_unit_test(deferring_and_recomputing_keep_the_bits),
        cmocka_unit_test(first_channels_pass_unchanged),
        cmocka_unit_test(blocks_match_the_formula),
        cmocka_unit_test(generation_matches_the_whole_sequence),
        cmocka_unit_test(adds_two_matrices_per_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
